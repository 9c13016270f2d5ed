"""Evaluation: a model on the validation levels, sampled and greedy, beside a random policy and the solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragen.algorithms.statistics import Estimate
from ragen.config.schema import Config
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan, refuse_when_nothing_fits
from ragen.llm_agent.build import sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.metrics import pass_rate, rollout_metrics, success, success_intervals
from ragen.llm_agent.policies import CAN_PLAY, play_policy
from ragen.tracking.console import progress
from ragen.tracking.names import FORMAT_VALID, LENIENT_VALID
from ragen.types import Episode, Metrics

REFERENCES = {"random": 1.0, "solver": 0.0}
"""Reference policy -> share of random replies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one policy did on the validation levels."""

    policy: str
    """`sampled T=...`, `greedy`, `random` or `solver`."""
    episodes: list[Episode]

    @property
    def success(self) -> Estimate:
        """Success rate with its 95 % interval; the levels are the independent units."""
        return success(self.episodes)

    @property
    def metrics(self) -> Metrics:
        """`<tag>/<metric>`: docs/metrics.md, without the name of the rollout."""
        return rollout_metrics(self.episodes) | success_intervals(self.episodes)


def evaluate_model(config: Config, agent: AgentProxy, environments: EsManager, modes: Sequence[str]) -> list[Result]:
    """The model's episodes in each mode: `sampled` (as rollout.val_kwargs say) or `greedy`."""
    results = []
    for mode in modes:
        params = sampling_params(config, agent.chat, is_validation=True)
        if mode == "greedy":
            params = replace(params, temperature=0.0, top_p=1.0, top_k=-1)
        name = "greedy" if params.is_greedy else f"sampled T={params.temperature:g}"
        num_solved = 0
        with progress(f"playing, {name}", len(environments.seats)) as advance:

            def on_episode(episode: Episode, advance=advance) -> None:
                nonlocal num_solved
                num_solved += episode.is_success
                advance(f"{num_solved} solved")

            levels = levels_from(config.seed.val, environments.num_groups)
            plan = RolloutPlan(levels=levels, noise_seed=config.seed.val, params=params)
            episodes = agent.rollout(environments, plan, on_episode)
        refuse_when_nothing_fits(episodes)
        results.append(Result(policy=name, episodes=episodes))
        if all(episode.status.is_fault for episode in episodes):
            break  # whatever failed every time would fail again
    return results


def evaluate_references(config: Config, environments: EsManager) -> list[Result]:
    """The random policy and the solver on the same levels, each on those of the tags that it can play."""
    results, seed = [], config.seed.val
    for name, noise in REFERENCES.items():
        tags = [tag for tag in environments.tags if CAN_PLAY[name](environments, tag)]
        if tags:
            episodes = play_policy(config, environments, noise=noise, base_seed=seed, seed=seed, tags=tags)
            results.append(Result(policy=name, episodes=episodes))
    return results


MEANS = {
    "reward": "{}/reward",
    "actions": "{}/num_actions",
    "valid": FORMAT_VALID,
    "lenient": LENIENT_VALID,
    "effective": "{}/action_is_effective",
    "turns": "{}/num_turns",
}
"""Column -> metric, of a tag or of all."""
COLUMNS = ("policy", "success [95 %]", "pass@k", *MEANS)


def table_rows(results: Sequence[Result], tag: str) -> list[list[str]]:
    """One row for each policy that played a tag."""
    rows = []
    for result in results:
        played = [episode for episode in result.episodes if episode.tag == tag]
        members = [episode for episode in played if not episode.status.is_fault]
        if not played:
            continue
        if not members:
            rows.append([result.policy, "no episode without a fault", *[""] * (len(COLUMNS) - 2)])
            continue
        _, pass_at = pass_rate(members) or (0, 0.0)
        metrics = rollout_metrics(members)
        means = [f"{metrics.get(name.format(tag), 0.0):.2f}" for name in MEANS.values()]
        rows.append([result.policy, f"{success(members)}", f"{pass_at:.3f}", *means])
    return rows
