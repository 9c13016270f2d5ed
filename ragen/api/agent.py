"""A model that plays: episodes of chosen levels, or an evaluation on the validation levels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.engine.registry import ENGINES
from ragen.errors import ConfigError
from ragen.evaluation.command import OWN_CONFIG, choose_config, read_config, to_overrides
from ragen.evaluation.evaluate import Result, evaluate_model, evaluate_references
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan
from ragen.llm_agent.build import build_agent, sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.models.resolve import model_path_of, resolve_model, tiny_family
from ragen.types import Episode


class Agent:
    """A model with the configuration it plays by: environments, prompts, limits, sampling.

        with ragen.Agent("tiny", ragen.load_config("_1_bandit")) as agent:
            [episode] = agent.play(seed=7)
            [result] = agent.evaluate()

    The model is loaded when it first plays; `tiny` is the embedded model of what is played. A configuration with
    `actor_rollout_ref.rollout.name=api` plays through an OpenAI-compatible server instead.
    """

    config: Config
    """What it plays by, with the model in it."""

    def __init__(self, model: str | Path, config: Config | None = None, *, device: str | None = None) -> None:
        """Name a model; one that does not exist is refused, and nothing is loaded yet.

        Args:
            model: A run directory (its newest checkpoint), a checkpoint, a model folder, a hub name, a name of
                `ragen models`, or `tiny`.
            config: What to play by; None takes that of the checkpoint's run, else `eval`.
            device: Such as `cpu` or `cuda`; None takes a GPU where there is one.
        """
        path = model_path_of(model)
        if config is None:
            name, folder = choose_config([path], OWN_CONFIG, None)
            config = read_config(name, to_overrides([path], name, folder, max_turn=None, max_actions=None), folder)
        parts = config.actor_rollout_ref
        parts = replace(parts, model=replace(parts.model, path=path))
        self.config = replace(config, model_path=path, actor_rollout_ref=parts)
        is_here = ENGINES[parts.rollout.name].can_train
        self._depends_on_envs = is_here and path == "tiny"
        if is_here and not self._depends_on_envs:
            resolve_model(path)
        self._device = device
        self._proxy: AgentProxy | None = None
        self._family = ""

    def play(
        self,
        tag: str | None = None,
        *,
        seed: int | None = None,
        num_levels: int = 1,
        group_size: int = 1,
        greedy: bool = False,
    ) -> list[Episode]:
        """Play levels and return the episodes: turns with texts, token ids, log-probs and rewards.

        Args:
            tag: Which environment of `custom_envs`; None takes the first one of validation.
            seed: The first level; further ones have the next seeds. None takes `seed.val`.
            num_levels: How many levels.
            group_size: Episodes of each level; they differ in their sampling noise.
            greedy: Take the likeliest token instead of sampling as `rollout.val_kwargs` says.
        """
        config = self.config
        tag = config.es_manager.val.env_configs.tags[0] if tag is None else tag
        if tag not in config.custom_envs:
            raise ConfigError(f"tag {tag!r} is not in custom_envs. Choose from {', '.join(config.custom_envs)}.")
        first = config.seed.val if seed is None else seed
        proxy = self._agent([config.custom_envs[tag].env_type])
        params = sampling_params(config, proxy.chat, is_validation=True)
        if greedy:
            params = replace(params, temperature=0.0, top_p=1.0, top_k=-1)
        groups = EnvConfigsConfig(tags=(tag,), n_groups=(num_levels,))
        played = EnvSetConfig(env_groups=num_levels, group_size=group_size, env_configs=groups)
        plan = RolloutPlan(levels=levels_from(first, num_levels), noise_seed=first, params=params)
        with closing(EsManager(played, config.custom_envs)) as environments:
            return proxy.rollout(environments, plan)

    def evaluate(
        self, modes: Sequence[Literal["sampled", "greedy"]] = ("sampled",), *, references: bool = False
    ) -> list[Result]:
        """Play the validation levels as `ragen eval` does; nothing is written.

        Args:
            modes: How replies are drawn; one result for each.
            references: Also the random policy, and the solver where every environment has one.

        Returns:
            Results with `policy`, `episodes`, `success` (with its interval) and `metrics`.
        """
        with closing(EsManager(self.config.es_manager.val, self.config.custom_envs)) as environments:
            results = evaluate_model(self.config, self._agent(environments.env_types), environments, modes)
            return results + (evaluate_references(self.config, environments) if references else [])

    def close(self) -> None:
        """Free the engine; the next play would load it again."""
        if self._proxy is not None:
            self._proxy.engine.close()
            self._proxy = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _agent(self, env_types: Sequence[str]) -> AgentProxy:
        """The loaded model; an embedded one of another family of environments makes way."""
        family = tiny_family(env_types) if self._depends_on_envs else ""
        if family != self._family:
            self.close()
        if self._proxy is None:
            self._proxy = build_agent(self.config, env_types=env_types, device=self._device)
            self._family = family
        return self._proxy
