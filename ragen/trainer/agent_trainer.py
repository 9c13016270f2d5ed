"""The training loop: rollout, filter, score, critic, actor, validation, checkpoint, early stop."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ragen.algorithms.rollout_filter import FilterResult, FilterSettings, RolloutFilter
from ragen.config.schema import Config
from ragen.diagnostics.collapse import CollapseDetector
from ragen.diagnostics.gradient_reporter import GradientReporter
from ragen.errors import Interrupted, NotFinite
from ragen.learners.batch import Batch
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import sampling_params
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.own_metrics import OwnMetrics
from ragen.seeding import fixed_hash
from ragen.text import safe
from ragen.tracking import names
from ragen.tracking.rundir import read_metrics, read_records
from ragen.tracking.timing import Timers
from ragen.tracking.tracker import Trackers
from ragen.trainer.card import model_card
from ragen.trainer.checkpoints.checkpointer import Checkpointer, Point, StepOutcome
from ragen.trainer.endings.early_stop import EarlyStop
from ragen.trainer.endings.ending import Cause, Ending, compose, ended_by, finished, left, past_the_end, stopped
from ragen.trainer.endings.signals import Signals
from ragen.trainer.endings.trouble import signs_of_step
from ragen.trainer.gradient_runs import GradientRuns
from ragen.trainer.held_out import PlayedLevels
from ragen.trainer.incentives import incentive_metrics
from ragen.trainer.levels import LEVELS, played_metrics
from ragen.trainer.recorder import Recorder
from ragen.trainer.refill import Refills
from ragen.trainer.scoring import Scorer, note_advantages
from ragen.trainer.starting.changes import data_facts
from ragen.trainer.starting.memory import peak_memory_share
from ragen.trainer.starting.preflight import preflight
from ragen.trainer.validation import Validator
from ragen.types import Episode, Group, Metrics, group_episodes
from ragen.workers.base import Workers


@dataclass(kw_only=True, slots=True)
class Filtered:
    """What the filter made of a rollout."""

    groups: list[Group]
    """Those that lost no episode."""
    result: FilterResult
    """What the filter keeps of them, and why."""
    metrics: Metrics
    """Of the rollout and of the filter."""
    stop: str | None
    """The rule of an early stop that applies now."""


@dataclass(kw_only=True, slots=True)
class Scored:
    """What can be trained on."""

    batch: Batch | None
    """None where the filter kept nothing."""
    metrics: Metrics


class AgentTrainer:
    """Trains until the last step or an early stop. Everything it needs is given; see build.py."""

    def __init__(
        self,
        config: Config,
        workers: Workers,
        *,
        trackers: Trackers,
        start_step: int,
        origin: Mapping[str, Any],
    ) -> None:
        self.config, self.workers, self.trackers, self.run = config, workers, trackers, trackers.run
        assert config.seed.train is not None, "the seed is drawn before"
        self.train_seed, self.start_step = config.seed.train, start_step
        self.held = ExitStack()
        """What is released when the run ends: the lock of its folder."""
        self.signals = Signals()
        self.environments = EsManager(config.es_manager.train, config.custom_envs)
        self.levels = LEVELS[config.es_manager.train.levels](config.es_manager.train, self.train_seed)
        self.refills = Refills(config.es_manager.train, announce=trackers.announce)
        self.cause: Cause | None = None
        """Why there is no further step; None while there is one."""
        self.ending: Ending | None = None
        """The report, once the run has ended."""
        self.own_metrics = OwnMetrics(config.trainer.metric_function)
        self.validate = Validator(config, workers, begin_episodes=trackers.begin_episodes, own_metrics=self.own_metrics)
        self.played = PlayedLevels()
        self.rollout_filter = RolloutFilter(FilterSettings.from_config(config.actor_rollout_ref.rollout))
        self.early_stop = EarlyStop(
            config.trainer.early_stop,
            empty_stop_steps=config.actor_rollout_ref.rollout.rollout_filter_empty_stop_steps,
        )
        self.timers = Timers(on_stage=trackers.stage, synchronize=workers.synchronize)
        self.recorder = Recorder(config.trainer, trackers, timer=self.timers)
        self.scorer = Scorer(config, workers, timer=self.timers, train_seed=self.train_seed)
        reporter = GradientReporter(
            config,
            workers,
            score=self.scorer.score_for_analysis,
            log_table=trackers.log_table,
            train_seed=self.train_seed,
            on_stage=trackers.stage,
            begin_episodes=trackers.begin_episodes,
        )
        self.gradients = GradientRuns(config.trainer, reporter, self.timers, start_step=start_step)
        self.collapse_detector = CollapseDetector(
            config.collapse_detection,
            config.agent_proxy,
            cross_logprobs=workers.cross_logprobs,
            tokenizer=workers.tokenizer,
            seed=self.train_seed,
            timer=self.timers,
        )
        self.checkpoints = Checkpointer(
            config.trainer,
            workers,
            facts={"origin": dict(origin), "train_seed": self.train_seed, "env_data": data_facts(config)},
            parts={
                "early_stop": self.early_stop,
                "kl_controller": self.scorer,
                "collapse": self.collapse_detector,
                "timers": self.timers,
                "levels": self.levels,
            },
            played=self.played,
            start_step=start_step,
            describe=self.describe,
            announce=trackers.announce,
        )

    # --- the run ----------------------------------------------------------------------------------------------------

    def fit(self) -> Ending:
        """Run to the end and report how it ended."""
        with self.running():
            self.cause = self.begin()
            for step in self.steps_left if self.cause is None else ():
                self.log(self.step(step))
                if self.cause is not None:
                    break
        assert self.ending is not None
        return self.ending

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the steps of a run: its lock, signals and trackers are held.

        However it is left, status.json is written and everything is closed. Left before there is a `cause`, the run
        counts as interrupted, and its newest step is saved.
        """
        with self.held, self.signals, self.trackers:
            try:
                try:
                    yield
                    if self.cause is None:
                        self.cause = left(self.trackers.step, self.save_newest())
                    self.checkpoints.wait()
                except Interrupted as error:
                    error.note = self.save_newest()
                    raise
                except NotFinite as error:
                    raise NotFinite(f"{error} {self.checkpoints.last_good()}") from error
            except BaseException as error:
                if lost := self.checkpoints.settle():
                    self.trackers.announce(lost)
                self.end(ended_by(error))  # at once: closing may hang, and Ray may end a process that lost its cluster
                raise
            finally:
                self.environments.close()
                self.gradients.reporter.close()
                self.validate.close()
                self.workers.close()
            self.end(self.cause)

    def begin(self) -> Cause | None:
        """What comes before the first step: validation or preflight, and what a checkpoint left undone.

        The cause of an end that comes at once; None where there are steps to do.
        """
        trainer, signs = self.config.trainer, self.recorder.signs
        if not (trainer.val_only or self.gradients.is_frozen):
            self.checkpoints.prepare(last_step=self.gradients.last_step)
        # A resumed run has been validated at this step already.
        if trainer.val_only or (trainer.val_before_train and self.start_step == 0):
            metrics = self.validation(self.start_step)
            self.checkpoints.is_best(self.start_step, metrics)
            self.trackers.log(self.start_step, metrics | self.timers.finish_step())
        elif self.start_step == 0:
            self.preflight()
        if trainer.val_only:
            return finished("validated (trainer.val_only)", signs=signs.get("val"))
        resumed = self.checkpoints.resumed
        if resumed is not None and not self.gradients.is_probe:
            self.complete(resumed)
            if resumed.stop:
                seen = signs_of_step(self.run.path, self.start_step)
                return stopped(resumed.stop, self.config, seen, read_metrics(self.run.path))
        if self.steps_left:
            return None
        if self.start_step > (total_steps := self.config.trainer.total_training_steps):
            return finished(past_the_end(self.start_step, total_steps))
        return finished(signs=signs.get("train"))

    @property
    def steps_left(self) -> range:
        """From the first step of this process to the last one of the run."""
        return range(self.gradients.first_step, self.config.trainer.total_training_steps + 1)

    def save_newest(self) -> str:
        """What was done to save the newest whole step of a run that ends before its last, in words."""
        with self.timers("save_checkpoint"), self.signals.held():
            return self.checkpoints.save_newest()

    def log(self, outcome: StepOutcome) -> None:
        """Log a step that is done, and find the `cause` of the run's end where it was the last one."""
        step, signs = outcome.step, self.recorder.signs
        with self.signals.held():
            self.trackers.log(step, outcome.metrics)
        if self.gradients.is_exit(step):
            self.cause = finished("exit_after_gradient_analysis")
        elif outcome.stop:
            self.cause = stopped(outcome.stop, self.config, signs, read_metrics(self.run.path))
        elif step >= self.config.trainer.total_training_steps:
            self.cause = finished(signs=signs.get("train"))

    def complete(self, outcome: StepOutcome) -> None:
        """Do what a kill right after the checkpoint, or a signal right after the update, left undone."""
        if not outcome.is_complete:
            self.timers.continue_step()
            with self.timers("step"):
                self.conclude(outcome)
            outcome.metrics |= self.timing(outcome)
        rows = {record["step"]: record for record in read_records(self.run.path)}
        if outcome.step not in rows:
            self.trackers.log(outcome.step, outcome.metrics)
        else:  # the totals with the time of that step, which the checkpoint inside it does not know
            self.timers.load_metrics(rows[outcome.step])

    def end(self, cause: Cause) -> Ending:
        """Write down and print how the run ended."""
        total_steps = self.config.trainer.total_training_steps
        ending = compose(self.run.path, cause, step=self.trackers.step, total_steps=total_steps)
        facts = ending.facts() | {"levels_played": len(self.played) if self.played.is_complete else None}
        try:
            self.trackers.close(cause.state, reason=cause.reason, early_stop=cause.early_stop, **facts)
        finally:  # a full disk takes no status.json
            print(ending, flush=True)
        self.ending = ending
        return ending

    # --- one step ---------------------------------------------------------------------------------------------------

    def step(self, step: int) -> StepOutcome:
        """One training step with what surrounds it: validation, early stop, checkpoint, timing."""
        with self.timers("step"):
            before = self.validate_before(step)
            outcome = self.train_step(step)
            outcome.metrics |= before
            self.conclude(outcome)
        outcome.metrics |= self.timing(outcome)
        return outcome

    def validate_before(self, step: int) -> Metrics:
        """The validation of a step that ends with its gradient analysis, and has none afterwards."""
        return self.validation(step) if self.gradients.validates_before(step) else {}

    def train_step(self, step: int) -> StepOutcome:
        """Rollout, filter, score, and update: critic, gradient analysis, actor."""
        episodes = self.rollout(step)
        with self.recorder.training(step, episodes) as write_episodes:
            filtered = self.filter(step, episodes)
            scored = self.score(step, filtered.result.kept, kept_ratio=filtered.result.kept_ratio)
            write_episodes()
            return self.update(step, filtered, scored)

    def conclude(self, outcome: StepOutcome) -> None:
        """What follows the updates of a step: validation, early stop, checkpoint."""
        self.checkpoints.check()
        trainer, step, is_best = self.config.trainer, outcome.step, False
        is_exit, is_last = self.gradients.is_exit(step), step >= trainer.total_training_steps
        if not is_exit and trainer.test_freq > 0 and (is_last or step % trainer.test_freq == 0):
            validation = self.validation(step)
            outcome.metrics |= validation
            outcome.stop = outcome.stop or self.early_stop.after_validation(validation)
            is_best = self.checkpoints.is_best(step, validation)
        if outcome.stop:
            outcome.metrics[f"early_stopped/{outcome.stop}"] = 1.0
        outcome.is_complete = True
        point = self.note_point(outcome)
        is_due = outcome.stop or is_best or self.checkpoints.is_due(step) or self.gradients.saves_at(step)
        if trainer.save_freq > 0 and not is_exit and is_due:
            with self.timers("save_checkpoint"), self.signals.held():
                self.checkpoints.save(point)
                if is_last or outcome.stop:  # nothing is left to do meanwhile
                    self.checkpoints.wait()

    def note_point(self, outcome: StepOutcome) -> Point:
        """What a checkpoint of this moment holds; a signal saves it, unless the step trains nothing."""
        point = self.checkpoints.point_of(outcome)
        if not (self.gradients.is_frozen or self.gradients.is_exit(outcome.step)):
            self.checkpoints.newest = point
        return point

    def timing(self, outcome: StepOutcome) -> Metrics:
        trainer = self.config.trainer
        num_devices = trainer.n_gpus_per_node * trainer.nnodes
        if written := self.checkpoints.take_seconds():
            self.timers.add("write_checkpoint", written)
        metrics = self.timers.finish_step(num_tokens=outcome.num_tokens, num_devices=num_devices)
        return metrics if self.config.uses_fsdp else metrics | {names.MEMORY_SHARE: peak_memory_share()}

    # --- the stages of a step ---------------------------------------------------------------------------------------

    def rollout(self, step: int, attempt: int = 0, indices: Sequence[int] | None = None) -> list[Episode]:
        """The levels of a step, or of the groups with these indices where attempts above 0 refill its batch.

        Noise follows from the seed, the step and the attempt, levels from these and what was recorded of earlier ones.
        """
        num_groups = self.environments.num_groups
        indices = range(num_groups) if indices is None else indices
        with self.timers("gen"):
            plan = RolloutPlan(
                levels=self.levels.choose(step, attempt, indices),
                noise_seed=fixed_hash(self.train_seed, "training", step, *([attempt] if attempt else [])),
                params=sampling_params(self.config, self.workers.chat, is_validation=False),
            )
            on_episode = self.trackers.begin_episodes(len(indices) * self.environments.group_size)
            episodes = self.workers.rollout(self.environments, plan, on_episode)
        for episode in episodes:
            episode.group_id += attempt * num_groups
        self.levels.record(episodes)
        return episodes

    def filter(self, step: int, episodes: list[Episode]) -> Filtered:
        """The groups that lost no episode, what the filter keeps of them, and what all that looks like.

        Where dropped groups are refilled, `episodes` grows by those that are played for it.
        """
        groups, result = self.choose_groups(episodes)
        for attempt, indices in self.refills.of_step(result):
            episodes += self.rollout(step, attempt, indices)
            groups, result = self.choose_groups(episodes)
            self.refills.note(result)
        self.played.add(episode.level for episode in episodes)
        stop = self.early_stop.after_filter(names.with_prefix(names.FILTER, result.metrics))
        metrics = self.measure(step, episodes, groups, result)
        return Filtered(groups=groups, result=result, metrics=metrics, stop=stop)

    def choose_groups(self, episodes: Sequence[Episode]) -> tuple[list[Group], FilterResult]:
        """The groups that lost no episode, and what the filter keeps of them."""
        groups = [group for group in group_episodes(episodes) if group.is_complete]
        with self.timers("filter"):
            return groups, self.rollout_filter(groups)

    def measure(self, step: int, episodes: Sequence[Episode], groups: Sequence[Group], kept: FilterResult) -> Metrics:
        """What a rollout and its filter look like."""
        metrics = names.with_prefix(names.TRAIN, rollout_metrics(episodes))
        metrics |= incentive_metrics(groups, use_turn_scores=self.config.agent_proxy.use_turn_scores)
        metrics |= self.own_metrics(names.TRAIN, episodes)
        if self.collapse_detector.is_due(step):
            with self.timers("collapse_metrics"):
                metrics |= self.collapse_detector(episodes, step=step)
        self.recorder.record_filter(step, kept)
        metrics |= names.with_prefix(names.FILTER, kept.metrics)
        metrics |= names.with_prefix(names.LEVELS, played_metrics(groups) | self.levels.metrics())
        metrics |= self.refills.metrics()
        return metrics | {
            names.EMPTY_AFTER_FILTER: float(not kept.kept),
            "rollout/consecutive_empty_after_filter_steps": float(self.early_stop.state.num_empty),
            "trainer/gradient_analysis_only": float(self.gradients.is_frozen),
        }

    def score(self, step: int, kept: Sequence[Group], *, kept_ratio: float) -> Scored:
        """Log-probs, values, rewards and advantages of the kept groups."""
        if not kept:
            return Scored(batch=None, metrics={})
        seed = fixed_hash(self.train_seed, step)
        batch, metrics = self.scorer(kept, kept_ratio=kept_ratio, measured_seed=seed)
        note_advantages(kept, batch)
        mini_batch_size = self.config.actor_rollout_ref.actor.ppo_mini_batch_size
        metrics |= {
            "train/batch_size": float(len(batch)),
            "train/num_mini_batches": float(-(-len(batch) // mini_batch_size)),
        }
        return Scored(batch=batch, metrics=metrics)

    def update(self, step: int, filtered: Filtered, scored: Scored) -> StepOutcome:
        """Critic, gradient analysis and actor; and note what a checkpoint of this moment holds."""
        batch = scored.batch
        num_tokens = 0 if batch is None else batch.num_tokens
        metrics = filtered.metrics | scored.metrics
        outcome = StepOutcome(step=step, metrics=metrics, stop=filtered.stop, num_tokens=num_tokens)
        with self.signals.held():  # a signal finds both models updated, or neither
            if not self.gradients.is_frozen:
                self.checkpoints.begin_update(step)
            if batch is not None and self.config.uses_critic:
                outcome.metrics |= self.update_model("critic", step, batch)
            outcome.metrics |= self.gradients.analyse(step, filtered.groups, filtered.result, batch)
            if batch is not None and step >= self.config.trainer.critic_warmup and not self.gradients.is_exit(step):
                outcome.metrics |= self.update_model("actor", step, batch)
            self.note_point(outcome)
        return outcome

    def update_model(self, role: str, step: int, batch: Batch) -> Metrics:
        """A gradient that is not finite is skipped, but not in silence."""
        if self.gradients.is_frozen:
            return {f"{role}/skipped_for_gradient_analysis_only": 1.0}
        with self.timers(f"update_{role}"):
            update = self.workers.update_actor if role == "actor" else self.workers.update_critic
            metrics = update(batch, step=step)
        name = names.join(role, names.SKIPPED_STEPS)
        if skipped := metrics.get(name):
            print(
                f"warning: step {step} skipped {skipped:g} optimizer steps of the {role}: their gradients were not "
                f"finite ({name}).",
                file=sys.stderr,
                flush=True,
            )
        return metrics

    def validation(self, step: int) -> Metrics:
        with self.timers("testing"):
            metrics, episodes = self.validate(self.played)
        self.recorder.record_validation(step, episodes, metrics)
        if step == self.start_step == 0:
            self.preflight(episodes)
        return metrics

    def describe(self, point: Point) -> str:
        """The model card of a checkpoint."""
        validated = names.by_tag(point.state["metrics"], names.VALIDATION, names.SUCCESS)
        rows = read_records(self.run.path) if validated else []
        first = next((row for row in rows if names.by_tag(row, names.VALIDATION, names.SUCCESS)), None)
        return model_card(
            self.config,
            step=point.step,
            train_seed=self.train_seed,
            metrics=point.state["metrics"],
            first=first if first and first["step"] < point.step else None,
        )

    def preflight(self, validated: Sequence[Episode] = ()) -> None:
        """Say once what pays, with the model's episodes where it was validated; it warns and never stops a run."""
        if not self.config.trainer.preflight:
            return
        try:
            found = preflight(self.config, validated)
            found.write(self.run)
            self.trackers.announce(found.to_text(has_break_even=False))
        except Exception as error:
            self.trackers.announce(f"The preflight failed: {safe(f'{type(error).__name__}: {error}')}")
