"""What `ragen check` does: a preflight by itself, with the environments' errors, what a training would refuse, and on
request the model."""

from __future__ import annotations

from contextlib import closing

from ragen.config.schema import Config
from ragen.errors import RagenError
from ragen.evaluation.evaluate import evaluate_model
from ragen.llm_agent.build import build_agent
from ragen.llm_agent.es_manager import EsManager
from ragen.text import printable
from ragen.tracking.console import console
from ragen.trainer.starting.own_parts import try_environments
from ragen.trainer.starting.preflight import conclude, levels_per_tag, play_references, preflight_levels
from ragen.trainer.starting.start import check_environments, plan_start
from ragen.types import Episode

LIMIT_S = 60.0
"""Seconds for the policies without a model; whoever types the command waits longer than a training does."""


def check(config: Config, *, has_model: bool) -> None:
    """Print what each policy earns; an environment that fails is an error, silence that pays is a warning."""
    check_environments(config)
    try_environments(config)
    played = play_references(config, limit_s=LIMIT_S)
    if played.fault:
        raise RagenError(f"custom_envs.{played.fault}\nRepair the environment, or check its env_config.")
    model = play_model(config) if has_model else []
    found = conclude(config, played.episodes, model, played.notes(LIMIT_S))
    console.print(printable(found.to_text(has_break_even=True)), soft_wrap=True)
    for note in training_notes(config):
        console.print(printable(note), soft_wrap=True)


def training_notes(config: Config) -> tuple[str, ...]:
    """What a training would say before its first step, of all but the environments, which have been tried. That the
    model or the GPUs are elsewhere is only a warning: the levels can be judged without them."""
    try:
        return plan_start(config, has_tried_environments=True).notes
    except RagenError as error:
        return (f"warning: a training would be refused here. {error}",)


def play_model(config: Config) -> list[Episode]:
    """The same levels with the model, sampled as in validation."""
    levels = preflight_levels(config, levels_per_tag(config))
    with closing(EsManager(levels, config.custom_envs)) as environments:
        agent = build_agent(config, env_types=environments.env_types)
        with closing(agent.engine):
            [result] = evaluate_model(config, agent, environments, ["sampled"])
    return result.episodes
