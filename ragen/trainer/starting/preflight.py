"""Before a run: what do a silent agent, a random one, the solver and the model earn on the validation levels?

Silence, chance and the solver play for real, through the environments, so that the answer holds for any of them. No
model is needed, and no torch. The time is bounded: levels are played in growing parts, and the next part begins only if
it should fit. A preflight warns; it never stops a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragen.config.schema import Config, EnvSetConfig, EnvTag
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.policies import (
    CAN_PLAY,
    OutOfTime,
    play_replies,
    scripted_policy,
    silence,
    until,
    why_no_random,
)
from ragen.llm_agent.prompts import unnameable_actions
from ragen.text import safe, shorten
from ragen.tracking.rundir import PREFLIGHT, RunDir, write_atomic
from ragen.trainer.starting import earnings
from ragen.types import Episode, Status

NUM_LEVELS = 128
"""Validation levels that are played at most, over all tags."""
LIMIT_S = 5.0
"""Seconds after which the start of a training goes on; the shipped environments take less than one."""
MAX_ERROR = 300
"""Characters of an environment's error in the one line about it."""


@dataclass(kw_only=True, slots=True)
class Played:
    """The episodes of the policies that need no model."""

    episodes: dict[str, list[Episode]] = field(default_factory=dict)
    """Policy -> its episodes, of whole parts only."""
    fault: str = ""
    """What an environment raised; nothing was played after that."""
    is_cut: bool = False
    """The time was over before all levels were played."""
    tags: dict[str, list[str]] = field(default_factory=dict)
    """Policy -> the tags that it can play, asked once."""
    about_tags: list[str] = field(default_factory=list)
    """A line for each tag that no random policy can play, or that has actions no reply can name."""

    def notes(self, limit_s: float) -> list[str]:
        """What was not played, a line each."""
        count = len(self.episodes.get(earnings.RANDOM, ()))
        note = f"The preflight was ended after {limit_s:g} s, with {count} levels played at random."
        cut = [note] if self.is_cut else []
        return cut + self.about_tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Preflight:
    """The answer."""

    tags: Sequence[earnings.TagEarnings]
    notes: Sequence[str] = ()
    """What was not played, and why: a line each."""
    warnings: Sequence[str] = ()
    """A paragraph for every environment in which silence pays, or whose solver has too small a budget."""

    def to_text(self, *, has_break_even: bool) -> str:
        """A table for each environment, what is missing in them, and the warnings.

        With `has_break_even` every table is followed by the success from which trying pays, unless a warning says it.
        """
        lines: list[str] = []
        for each in self.tags:
            lines.append(earnings.table(each))
            lines.append(earnings.break_even_line(each) if has_break_even and not each.silence_pays else "")
        return "\n".join(filter(None, [*lines, *self.notes, *self.warnings]))

    def write(self, run: RunDir) -> None:
        """preflight.json of a run directory."""
        record = {
            "tags": {each.tag: each.to_json() for each in self.tags},
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }
        write_atomic(run.path / PREFLIGHT, json.dumps(record, indent=2) + "\n")


def preflight(config: Config, model: Sequence[Episode] = (), *, limit_s: float = LIMIT_S) -> Preflight:
    """Play the references and compare them, with the episodes of the model where there are some."""
    played = play_references(config, limit_s=limit_s)
    notes = played.notes(limit_s)
    if played.fault:
        first_line = played.fault.splitlines()[0]
        notes.append(f"The preflight was ended by an environment: {safe(first_line, MAX_ERROR)}")
    return conclude(config, played.episodes, model, notes)


def conclude(
    config: Config, played: Mapping[str, Sequence[Episode]], model: Sequence[Episode], notes: Sequence[str] = ()
) -> Preflight:
    """What the episodes of all policies say."""
    everybody = {**played, earnings.MODEL: model} if model else dict(played)
    tags = [each for tag in played_tags(config) if (each := earnings.compare(tag, everybody)).policies]
    penalty = config.es_manager.format_penalty
    warnings = []
    for each in tags:
        max_actions = config.custom_envs[each.tag].max_actions_per_traj
        warnings.append(earnings.warning(each, config.agent_proxy, format_penalty=penalty))
        warnings.append(earnings.budget_warning(each, config.agent_proxy, max_actions=max_actions))
    return Preflight(tags=tags, notes=notes, warnings=[text for text in warnings if text])


def played_tags(config: Config) -> tuple[str, ...]:
    """The tags that are validated, and those that are trained only."""
    sets = (config.es_manager.val.env_configs, config.es_manager.train.env_configs)
    rows = [row for each in sets for row in zip(each.tags, each.n_groups, strict=True)]
    return tuple(dict.fromkeys(tag for tag, num_groups in rows if num_groups))


def lines_about_tags(config: Config, environments: EsManager, by_chance: Collection[str]) -> list[str]:
    """A line for each tag that chance has not played, with the reason, and for each with actions no reply can name."""
    reasons = {tag: why_no_random(environments, tag) for tag in environments.tags if tag not in by_chance}
    lines = [f"{tag} has no random line: {why}." for tag, why in reasons.items() if why]
    return lines + [line for tag in environments.tags if (line := unnameable_line(config, environments, tag))]


def unnameable_line(config: Config, environments: EsManager, tag: str) -> str:
    """What is said of a tag with actions that no reply can name, on the level of its first seat; empty without any."""
    agent, seat = config.agent_proxy, next(seat for seat in environments.seats if seat.tag == tag)
    names = unnameable_actions(seat, agent)
    if not names:
        return ""
    return (
        f"{tag}: no reply can name {shorten(', '.join(map(repr, names)), MAX_ERROR)} ({len(names)} of "
        f"{len(seat.actions or {})} actions): a name holds neither agent_proxy.action_sep ({agent.action_sep}) nor a "
        "tag of the reply."
    )


def levels_per_tag(config: Config) -> int:
    return max(1, min(NUM_LEVELS, config.es_manager.val.env_groups) // len(played_tags(config)))


def preflight_levels(config: Config, num_levels: int) -> EnvSetConfig:
    """So many levels of every tag, a try each."""
    val, tags = config.es_manager.val, played_tags(config)
    env_configs = replace(val.env_configs, tags=tags, n_groups=(num_levels,) * len(tags))
    return replace(val, env_groups=num_levels * len(tags), group_size=1, env_configs=env_configs)


def impatient(spec: EnvTag, limit_s: float) -> EnvTag:
    """The same environment; no call takes longer than the preflight may."""
    return spec if spec.step_timeout is None else replace(spec, step_timeout=min(spec.step_timeout, limit_s))


def play_references(config: Config, *, limit_s: float) -> Played:
    """Silence, the random policy and the solver on the first validation levels: 1 of each tag, then 3, 12, 48, ..."""
    started, num_tags, total = time.monotonic(), len(played_tags(config)), levels_per_tag(config)
    config = replace(config, custom_envs={tag: impatient(spec, limit_s) for tag, spec in config.custom_envs.items()})
    played, done = Played(), 0
    while done < total and not played.fault and not played.is_cut:
        count = min(3 * done or 1, total - done)
        expected = (time.monotonic() - started) * count / done if done else 0.0
        if time.monotonic() + expected > started + limit_s:
            played.is_cut = True
            break
        first = config.seed.val + done * num_tags
        _play_part(config, preflight_levels(config, count), first, started + limit_s, played)
        done += count
    return played


def _play_part(config: Config, levels: EnvSetConfig, base_seed: int, deadline: float, played: Played) -> None:
    """Every policy on some levels; what is cut short leaves no episodes, for those would be the short ones."""
    environments = EsManager(levels, config.custom_envs)
    try:
        for policy in (earnings.SILENT, earnings.RANDOM, earnings.SOLVER):
            if policy not in played.tags:
                can_play = CAN_PLAY.get(policy, lambda *_: True)
                played.tags[policy] = [tag for tag in environments.tags if can_play(environments, tag)]
                if policy == earnings.RANDOM:
                    played.about_tags = lines_about_tags(config, environments, played.tags[policy])
            tags = played.tags[policy]
            if not tags:
                continue
            noise, seed = float(policy == earnings.RANDOM), config.seed.val
            tries = scripted_policy(config, environments, noise=noise, seed=seed, tags=tags)
            reply = until(deadline, silence if policy == earnings.SILENT else tries)
            episodes = play_replies(config, environments, reply, base_seed=base_seed, seed=seed, tags=tags)
            if lost := [episode for episode in episodes if episode.status.is_fault]:
                faults = [f"{e.tag}: {e.error}" for e in lost if e.status is not Status.ENV_TIMEOUT]
                played.fault, played.is_cut = (faults or [""])[0], not faults
                return
            played.episodes.setdefault(policy, []).extend(episodes)
    except OutOfTime:
        played.is_cut = True
    finally:
        environments.close()
