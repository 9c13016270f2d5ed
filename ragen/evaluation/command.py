"""What `ragen eval` does: play the validation levels, print a table, write a run directory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ragen.config import Config, load_config
from ragen.config.load import load_run_config, to_dict
from ragen.config.seeds import overlap, training_levels, validation_levels
from ragen.config.shares import shares
from ragen.config.show import to_yaml
from ragen.engine.base import StopReason
from ragen.engine.registry import ENGINES
from ragen.errors import ConfigError, RagenError
from ragen.evaluation.evaluate import COLUMNS, REFERENCES, Result, evaluate_model, evaluate_references, table_rows
from ragen.files import flatten, read_yaml
from ragen.llm_agent.agent_proxy import AgentProxy
from ragen.llm_agent.build import build_agent
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.metrics import rollout_metrics, success
from ragen.llm_agent.policies import play_replies, silence
from ragen.models.resolve import model_path_of, resolve_model
from ragen.text import printable
from ragen.tracking.advisories.rules import CUT_SHARE, reply_limits
from ragen.tracking.console import console, counted, print_table, waiting
from ragen.tracking.lock import run_lock
from ragen.tracking.names import FAULTS, below, with_prefix
from ragen.tracking.rundir import SFT_RECORD, RunDir
from ragen.trainer.checkpoints.checkpoint import BEST, find_best
from ragen.trainer.checkpoints.checksums import verify
from ragen.trainer.endings.ending import ended_by
from ragen.trainer.held_out import PlayedLevels, held_out_metrics, levels_behind
from ragen.trainer.starting.earnings import RANDOM, SILENT
from ragen.trainer.starting.preflight import conclude, lines_about_tags
from ragen.types import Status

OWN_CONFIG = "that of the checkpoint's run, else eval"
"""Default of --config-name, as --help shows it."""
RUN_CONFIG = "config"
"""Name of the configuration in a run directory."""
MODES = {"sampled": ("sampled",), "greedy": ("greedy",), "both": ("sampled", "greedy")}


def evaluate(
    *,
    overrides: Sequence[str],
    config_name: str,
    config_dir: str | None,
    max_turn: int | None,
    max_actions: int | None,
    best: bool,
    mode: str,
    no_reference: bool,
    out: Path | None,
) -> None:
    """Evaluate the model that a command line names; a word without `=` is the model, the others are overrides."""
    words = [bare_model(word) for word in overrides]
    if best:
        words = [word if "=" in word else str(best_model(Path(word))) for word in words]
    words = [word if "=" in word else newest_model(word) for word in words]
    name, folder = choose_config(words, config_name, config_dir)
    if folder:
        console.print(f"Environment and prompts: {Path(folder) / name}.yaml", soft_wrap=True)
    changes = to_overrides(words, name, folder, max_turn=max_turn, max_actions=max_actions)
    config = read_config(name, changes, folder)
    if folder and name == RUN_CONFIG and (note := overlap_note(config, Path(folder))):
        console.print(note, soft_wrap=True)
    out = out or Path(config.trainer.local_log_dir) / time.strftime(f"{config.trainer.experiment_name}_%Y%m%d_%H%M%S")
    results = run_evaluation(config, out, modes=MODES[mode], has_references=not no_reference)
    if not no_reference:
        say_what_pays(config, RunDir(out), results)
    console.print(f"Episodes, metrics and configuration: {out}   (read them: ragen show {out})", soft_wrap=True)


def bare_model(word: str) -> str:
    """model_path=RUN/global_step_4/actor -> RUN/global_step_4/actor: the config of the run counts either way."""
    path = word.removeprefix("model_path=").strip("'\"")
    return path if word.startswith("model_path=") and path and "=" not in path else word


def newest_model(word: str) -> str:
    """The newest actor of a run or a checkpoint, which is said; any other model itself."""
    if (path := model_path_of(word)) != word:
        console.print(f"Model: {path}, the newest in {word}", soft_wrap=True)
    return path


def best_model(run: Path) -> Path:
    """The actor of the checkpoint that a run kept as its best."""
    best = find_best(run)
    if best is None:
        raise ConfigError(
            f"--best: {run} names no best checkpoint ({BEST}). trainer.keep_best=True writes it, once a validation is "
            "better than the one before training."
        )
    return best / "actor"


def choose_config(words: Sequence[str], name: str, config_dir: str | None) -> tuple[str, str | None]:
    """Name and folder of the config: as given, else of the run that made the checkpoint, else `eval`."""
    if name != OWN_CONFIG:
        return name, config_dir
    for model in (Path(word).resolve() for word in words if "=" not in word):
        # RUN/global_step_N/actor, RUN/merged_model and RUN/lora_weights/global_step_N/actor
        runs = [folder for folder in model.parents[:3] if (folder / "config.yaml").is_file()] if model.is_dir() else []
        if runs and config_dir is None:
            return RUN_CONFIG, str(runs[0])
    return "eval", config_dir


def read_config(name: str, overrides: Sequence[str], folder: str | None) -> Config:
    if folder is not None and name == RUN_CONFIG:
        return load_run_config(overrides, folder)
    return load_config(name, overrides, folder)


def overlap_note(config: Config, run: Path) -> str:
    """Says when levels of a run's training are evaluated, which is allowed; empty where they are held out."""
    tags = set(config.es_manager.val.env_configs.tags) & set(config.es_manager.train.env_configs.tags)
    if config.seed.train is None or not tags or (run / SFT_RECORD).exists():  # demonstrations have levels of their own
        return ""
    trained, played = training_levels(config, config.seed.train), validation_levels(config)
    if not overlap(trained, played):
        return ""
    return (
        f"Not held out: the levels {played.start} to {played.stop - 1} meet {trained.start} to {trained.stop - 1}, "
        f"those of the run's training (seed.train={config.seed.train}). "
        f"Held-out levels: for example seed.val={trained.stop}."
    )


def to_overrides(
    words: Sequence[str], name: str, folder: str | None, *, max_turn: int | None, max_actions: int | None
) -> list[str]:
    """The command line as overrides of the config; a word without `=` is the model."""
    overrides: list[str] = []
    for word in words:
        # A run's own config.yaml holds resolved values, where the second key does not follow the first.
        is_model = "=" not in word
        overrides += [f"model_path='{word}'", f"actor_rollout_ref.model.path='{word}'"] if is_model else [word]
    if folder and (own := Path(folder) / f"{name}.yaml").is_file():
        overrides += group_overrides(words, own)
    if max_turn is not None:
        overrides.append(f"agent_proxy.max_turn={max_turn}")
    if max_turn is not None or max_actions is not None:
        config = read_config(name, overrides, folder)
        for tag in config.es_manager.val.env_configs.tags:
            # Otherwise the budget of the run would end the episode long before the asked turn.
            enough = (max_turn or 0) * config.agent_proxy.max_actions_per_turn
            budget = max_actions or max(config.custom_envs[tag].max_actions_per_traj, enough)
            overrides.append(f"custom_envs.{tag}.max_actions_per_traj={budget}")
    return overrides


def group_overrides(words: Sequence[str], own: Path) -> list[str]:
    """A run's own config.yaml holds resolved numbers of groups, which do not follow another total by themselves.

    A file that leaves them out, or to interpolation, takes those of the files it builds on, which follow.
    """
    given = {key: value for key, _, value in (word.lstrip("+").partition("=") for word in words)}
    overrides = []
    for name in ("train", "val"):
        total, key = given.get(f"es_manager.{name}.env_groups", ""), f"es_manager.{name}.env_configs.n_groups"
        if total.isdecimal() and key not in given and f"es_manager.{name}.env_configs.tags" not in given:
            counts = flatten(read_yaml(own)).get(key)
            if isinstance(counts, list) and all(isinstance(count, int) for count in counts):
                overrides.append(f"{key}={shares(counts, int(total))}".replace(" ", ""))
    return overrides


def run_evaluation(config: Config, out: Path, *, modes: Sequence[str], has_references: bool) -> list[Result]:
    """Evaluate, print one table per tag and write everything into the run directory, which is locked meanwhile.

    The folder is made once the model is loaded: what is refused before leaves nothing.
    """
    started = time.monotonic()
    with closing(EsManager(config.es_manager.val, config.custom_envs)) as environments:
        with waiting("Loading the model"):
            agent = loaded_agent(config, environments.env_types)
        with run_lock(out):
            run = RunDir(out)
            run.write_config(to_yaml(config))
            run.write_status("running")
            notes: list[str] = []
            try:
                results = evaluate_model(config, agent, environments, modes)
                agent.engine.close()
                if has_references:
                    references = evaluate_references(config, environments)
                    by_chance = {e.tag for result in references if result.policy == RANDOM for e in result.episodes}
                    notes = lines_about_tags(config, environments, by_chance)
                    results += references
                for result in results:
                    run.write_episodes(result.policy.replace(" ", "_").replace("=", ""), result.episodes)
            except BaseException as error:
                cause = ended_by(error)
                run.write_status(cause.state, cause.reason)
                raise
            played = levels_behind_model(config, environments.env_types)
            report(config, results)
            for note in notes:
                console.print(note, soft_wrap=True)
            report_unseen(results, played)
            run.log(0, summarize(results, played))
            if lost := all_lost(results):
                run.write_status("failed", lost)
                raise RagenError(lost)
            run.write_status("finished", seconds=round(time.monotonic() - started, 1))
            return results


def loaded_agent(config: Config, env_types: Sequence[str]) -> AgentProxy:
    """The model to evaluate, once the files of its checkpoint are those that were written."""
    if (model := Path(config.actor_rollout_ref.model.path)).is_dir():
        verify(model.parent, role=model.name)
    agent = build_agent(config, env_types=env_types)
    for note in agent.notes:
        console.print(note, soft_wrap=True)
    return agent


def say_what_pays(config: Config, run: RunDir, results: Sequence[Result]) -> None:
    """The preflight, of the episodes that were evaluated: of the model the sampled ones where there are both."""
    with closing(EsManager(config.es_manager.val, config.custom_envs)) as environments:
        played = {SILENT: play_replies(config, environments, silence, base_seed=config.seed.val)}
    played |= {result.policy: result.episodes for result in results if result.policy in REFERENCES}
    found = conclude(config, played, results[0].episodes)
    found.write(run)
    console.print(found.to_text(has_break_even=True), soft_wrap=True)


def all_lost(results: Sequence[Result]) -> str:
    """What to say when all episodes of the model were lost to faults: nothing was evaluated. Else empty."""
    for result in (result for result in results if result.policy not in REFERENCES):
        if all(episode.status.is_fault for episode in result.episodes):
            first = result.episodes[0]
            return (
                f"{result.policy}: all {len(result.episodes)} episodes were lost to faults, the first as "
                f"{first.status.value}: {first.error}"
            )
    return ""


def report(config: Config, results: Sequence[Result]) -> None:
    """The table of each tag, and what went wrong if anything did."""
    val = config.es_manager.val
    for tag in val.env_configs.tags:
        levels = sum(n for t, n in zip(val.env_configs.tags, val.env_configs.n_groups, strict=True) if t == tag)
        title = (
            f"{tag}: {counted(levels, 'level')} x {val.group_size}, up to "
            f"{counted(config.agent_proxy.max_turn, 'turn')}, {config.model_path}"
        )
        print_table(title, COLUMNS, table_rows(results, tag))
    for result in results:
        faults = {name: value for name, value in below(FAULTS, rollout_metrics(result.episodes)).items() if value}
        if faults:
            first = next(episode.error for episode in result.episodes if episode.status.is_fault)
            console.print(
                printable(f"{result.policy}: {with_prefix(FAULTS, faults)}; the first: {first}"), soft_wrap=True
            )
        turns = [turn for episode in result.episodes for turn in episode.turns]
        num_cut = sum(turn.stop_reason == StopReason.LENGTH for turn in turns)
        if num_cut > CUT_SHARE * len(turns):
            limits = reply_limits(
                flatten(to_dict(config)), list(dict.fromkeys(episode.tag for episode in result.episodes))
            )
            console.print(f"{result.policy}: {num_cut} of {len(turns)} replies were cut by {limits}.", soft_wrap=True)
        if num_full := sum(episode.status is Status.CONTEXT_FULL for episode in result.episodes):
            console.print(
                f"{result.policy}: {num_full} of {len(result.episodes)} episodes ended with their context full. Raise "
                f"actor_rollout_ref.rollout.max_model_len ({config.actor_rollout_ref.rollout.max_model_len}).",
                soft_wrap=True,
            )


def levels_behind_model(config: Config, env_types: Sequence[str]) -> PlayedLevels:
    """Levels that the evaluated model was trained on; of one behind an API nothing is known."""
    parts = config.actor_rollout_ref
    is_here = ENGINES[parts.rollout.name].can_train
    return levels_behind(resolve_model(parts.model.path, env_types=env_types)) if is_here else PlayedLevels()


def report_unseen(results: Sequence[Result], played: PlayedLevels) -> None:
    """The success of the model on levels that it was not trained on, where it was trained on some of them."""
    for result in results:
        new = [episode for episode in result.episodes if episode not in played and not episode.status.is_fault]
        if result.policy in REFERENCES or not played.is_complete or len(new) == len(result.episodes):
            continue
        for tag in dict.fromkeys(episode.tag for episode in new):
            members = [episode for episode in new if episode.tag == tag]
            console.print(
                f"{tag}, {result.policy}: {success(members)} on the {len({e.group_id for e in members})} levels that "
                "the model was not trained on, by content.",
                soft_wrap=True,
            )


def summarize(results: Sequence[Result], played: PlayedLevels) -> dict[str, float]:
    """All metrics as `<policy>/<metric>`, with the ends of the success intervals."""
    metrics: dict[str, float] = {}
    for result in results:
        held_out = held_out_metrics(result.episodes, played) if len(played) else {}
        metrics |= with_prefix(result.policy.split()[0], result.metrics | held_out)
    return metrics
