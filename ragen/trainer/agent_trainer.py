"""The training loop: rollout, filter, score, critic, actor, validation, checkpoint, early stop."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.algorithms.kl import KlController, make_kl_controller
from ragen.algorithms.rollout_filter import FilterResult, FilterSettings, RolloutFilter
from ragen.config.schema import Config
from ragen.diagnostics.collapse import CollapseDetector
from ragen.diagnostics.gradient_reporter import GradientReporter
from ragen.errors import Interrupted, NotFinite
from ragen.learners.batch import Batch
from ragen.llm_agent.build import sampling_params
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.metrics import rollout_metrics, success
from ragen.seeding import fixed_hash
from ragen.tracking import names
from ragen.tracking.rundir import RunDir, read_metrics
from ragen.tracking.timing import Timers
from ragen.tracking.tracker import Trackers
from ragen.trainer.checkpoint import find_resume, name_best, rotate, save_checkpoint
from ragen.trainer.early_stop import EarlyStop
from ragen.trainer.ending import Cause, Ending, compose, ended_by, finished, stopped
from ragen.trainer.held_out import PlayedLevels
from ragen.trainer.scoring import score
from ragen.trainer.signals import Signals
from ragen.trainer.trouble import Signs, read_signs, signs_of_step
from ragen.trainer.validation import Validator
from ragen.types import Episode, Group, Metrics, group_episodes
from ragen.workers.base import Workers

PER_TOKEN_STAGES: tuple[str, ...] = ("gen", "old_log_prob", "ref", "values", "update_actor", "update_critic")
"""Stages whose time is also logged per token of the batch."""


@dataclass(kw_only=True, slots=True)
class StepOutcome:
    """What a step logged, and why the run ends with it, if it does."""

    metrics: Metrics
    stop: str | None = None
    num_tokens: int = 0
    """Tokens of the batch that was trained on."""
    is_exit: bool = False
    """The run ends here because exit_after_gradient_analysis says so."""
    is_complete: bool = True
    """Validation, early stop and checkpoint are done as well. A signal may come before."""


@dataclass(kw_only=True, slots=True)
class Point:
    """The newest step whose updates are done: what a signal saves."""

    step: int
    state: dict[str, Any]
    """What a resumed run continues from, but for the played levels: there may be millions, and few points are saved."""
    num_levels: int
    """How many levels had been played."""
    is_saved: bool = False


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
        self.train_seed, self.start_step, self.origin = config.seed.train, start_step, origin
        self.is_probe = config.trainer.gradient_analysis_only and start_step > 0
        """The run looks at the step of its checkpoint instead of going on from it."""
        self.signs: dict[str, Signs] = {}
        """What the last training and the last validation rollout looked like."""
        self.held = ExitStack()
        """What is given back when the run ends: the lock of its folder."""
        self.signals = Signals()
        self.point: Point | None = None
        self.best: dict[str, float] | None = None
        """Step and mean success of the best validation so far."""
        self.resumed: StepOutcome | None = None
        """What the step of the checkpoint logged, when the run continues one."""
        self.environments = EsManager(config.es_manager.train, config.custom_envs)
        self.validate = Validator(config, workers, begin_episodes=trackers.begin_episodes)
        self.played = PlayedLevels()
        self.rollout_filter = RolloutFilter(FilterSettings.from_config(config.actor_rollout_ref.rollout))
        self.early_stop = EarlyStop(
            config.trainer.early_stop,
            empty_stop_steps=config.actor_rollout_ref.rollout.rollout_filter_empty_stop_steps,
        )
        self.kl_controller: KlController = make_kl_controller(
            config.algorithm.kl_ctrl.type,
            kl_coef=config.algorithm.kl_ctrl.kl_coef,
            target_kl=config.algorithm.kl_ctrl.target_kl,
            horizon=config.algorithm.kl_ctrl.horizon,
        )
        self.gradient_reporter = GradientReporter(
            config, workers, score=self.score_aside, log_table=trackers.log_table, train_seed=self.train_seed
        )
        self.timers = Timers(on_stage=trackers.stage, synchronize=workers.synchronize)
        self.collapse_detector = CollapseDetector(
            config.collapse_detection,
            config.agent_proxy,
            cross_logprobs=workers.cross_logprobs,
            tokenizer=workers.tokenizer,
            seed=self.train_seed,
            timer=self.timers,
        )

    def fit(self) -> Ending:
        """Run to the end and say how it ended; status.json is written and the trackers are closed whatever happens."""
        with self.held, self.signals, self.trackers:
            try:
                try:
                    cause = self.run_steps()
                except Interrupted as error:
                    error.note = self.save_point()
                    raise
                except NotFinite as error:
                    raise NotFinite(f"{error} {self.last_good()}") from error
            except BaseException as error:
                self.end(ended_by(error))  # at once: closing may hang, and Ray may end a process that lost its cluster
                raise
            finally:
                self.environments.close()
                self.gradient_reporter.close()
                self.validate.close()
                self.workers.close()
            return self.end(cause)

    def run_steps(self) -> Cause:
        """Every step that is left, and why there is no further one."""
        trainer = self.config.trainer
        # A resumed run has been validated at this step already.
        if trainer.val_only or (trainer.val_before_train and self.start_step == 0):
            metrics = self.validation(self.start_step)
            self.see_best(self.start_step, metrics)
            self.trackers.log(self.start_step, metrics | self.timers.finish_step())
        if trainer.val_only:
            return finished("validated (trainer.val_only)", signs=self.signs.get("val"))
        if self.resumed is not None and not self.is_probe:
            self.complete(self.resumed)
            if self.resumed.stop:
                self.signs = signs_of_step(self.run.path, self.start_step)
                return self.give_up(self.resumed.stop)
        first_step = self.start_step if self.is_probe else self.start_step + 1
        for step in range(first_step, trainer.total_training_steps + 1):
            outcome = self.step(step)
            with self.signals.held():
                self.trackers.log(step, outcome.metrics)
            if outcome.is_exit:
                return finished("exit_after_gradient_analysis")
            if outcome.stop:
                return self.give_up(outcome.stop)
        return finished(signs=self.signs.get("train"))

    def complete(self, outcome: StepOutcome) -> None:
        """Do what a kill right after the checkpoint, or a signal right after the update, left undone."""
        if not outcome.is_complete:
            with self.timers("step"):
                self.conclude(self.start_step, outcome)
            outcome.metrics |= self.timing(outcome)
        has_log = (self.run.path / "metrics.jsonl").exists()
        rows = {record["step"]: record for record in read_metrics(self.run.path)} if has_log else {}
        if self.start_step not in rows:
            self.trackers.log(self.start_step, outcome.metrics)
        else:  # the totals with the time of that step, which the checkpoint inside it does not know
            self.timers.load_metrics(rows[self.start_step])

    def give_up(self, rule: str) -> Cause:
        empty_steps = self.config.actor_rollout_ref.rollout.rollout_filter_empty_stop_steps
        train, val = self.signs.get("train"), self.signs.get("val")
        return stopped(rule, self.config.trainer.early_stop, empty_steps=empty_steps, train=train, val=val)

    def end(self, cause: Cause) -> Ending:
        """Write down and say how the run ended."""
        total_steps = self.config.trainer.total_training_steps
        ending = compose(self.run.path, cause, step=self.trackers.step, total_steps=total_steps)
        try:
            self.trackers.close(cause.state, reason=cause.reason, early_stop=cause.early_stop, **ending.facts())
        finally:  # a full disk takes no status.json
            print(ending, flush=True)
        return ending

    def note_signs(self, kind: str, episodes: Sequence[Episode]) -> None:
        """Keep what the end of the run may have to explain; episodes that are all lost are worth a word at once."""
        before, signs = self.signs.get(kind), read_signs(episodes)
        self.signs[kind] = signs
        if signs.trouble is not None and signs.trouble.is_fault and (before is None or before.trouble is None):
            self.trackers.say(f"{kind}: {signs.trouble}")

    def step(self, step: int) -> StepOutcome:
        """One training step with what surrounds it: validation, early stop, checkpoint, timing."""
        trainer = self.config.trainer
        with self.timers("step"):
            is_validated_first = self.is_probe and trainer.val_before_train and step == self.start_step
            before = self.validation(step) if is_validated_first else {}
            outcome = self.train_step(step)
            outcome.metrics |= before
            self.conclude(step, outcome)
        outcome.metrics |= self.timing(outcome)
        return outcome

    def conclude(self, step: int, outcome: StepOutcome) -> None:
        """What follows the updates of a step: validation, early stop, checkpoint."""
        trainer = self.config.trainer
        is_last, is_best = step >= trainer.total_training_steps, False
        if not outcome.is_exit and trainer.test_freq > 0 and (is_last or step % trainer.test_freq == 0):
            validation = self.validation(step)
            outcome.metrics |= validation
            outcome.stop = outcome.stop or self.early_stop.see_validation(validation)
            is_best = self.see_best(step, validation)
        if outcome.stop:
            outcome.metrics[f"early_stopped/{outcome.stop}"] = 1.0
        outcome.is_complete = True
        point = self.note_point(step, outcome)
        if point is not None and not outcome.is_exit and (self.is_save_due(step) or outcome.stop or is_best):
            with self.timers("save_checkpoint"), self.signals.held():
                self.save(point)

    def see_best(self, step: int, validation: Metrics) -> bool:
        """Whether no validation before had as much success; with several environments the mean counts."""
        found = names.by_tag(validation, names.VALIDATION, names.SUCCESS).values()
        success = fmean(found) if found else math.nan
        is_best = self.config.trainer.keep_best and success > (self.best["success"] if self.best else -math.inf)
        if is_best:
            self.best = {"step": step, "success": success}
        return is_best

    def timing(self, outcome: StepOutcome) -> Metrics:
        trainer = self.config.trainer
        return self.timers.finish_step(
            tokens=dict.fromkeys(PER_TOKEN_STAGES, outcome.num_tokens),
            total_tokens=outcome.num_tokens,
            num_devices=trainer.n_gpus_per_node * trainer.nnodes,
        )

    def is_save_due(self, step: int) -> bool:
        trainer = self.config.trainer
        is_round = step >= trainer.total_training_steps or step % max(1, trainer.save_freq) == 0
        is_analysed = trainer.save_at_gradient_analysis and self.gradient_reporter.is_due(step)
        return trainer.save_freq > 0 and (is_round or is_analysed)

    def train_step(self, step: int) -> StepOutcome:
        """Rollout, filter, score, analyse and update."""
        trainer = self.config.trainer
        with self.timers("gen"):
            episodes = self.rollout(step)
        self.played.add(episodes)
        self.write_episodes(step, "train", episodes)
        self.note_signs("train", episodes)
        groups = [group for group in group_episodes(episodes) if group.is_complete]
        with self.timers("filter"):
            kept = self.rollout_filter(groups)
        metrics = names.with_prefix(names.TRAIN, rollout_metrics(episodes))
        if self.collapse_detector.is_due(step):
            with self.timers("collapse_metrics"):
                metrics |= self.collapse_detector(episodes, step=step)
        metrics |= names.with_prefix(names.FILTER, kept.metrics)
        self.log_tables(step, kept)
        stop = self.early_stop.see_kept(len(kept.kept))
        metrics[names.EMPTY_AFTER_FILTER] = float(not kept.kept)
        metrics["rollout/consecutive_empty_after_filter_steps"] = float(self.early_stop.state.num_empty)
        metrics["train/rollout_attempts"] = 1.0
        metrics["trainer/gradient_analysis_only"] = float(trainer.gradient_analysis_only)
        batch: Batch | None = None
        if kept.kept:
            stop = self.early_stop.see_reward_std(metrics[names.IN_GROUP_REWARD_STD])
            batch, scored = score(
                kept.kept,
                self.config,
                self.workers,
                kl_controller=self.kl_controller,
                kept_ratio=kept.kept_ratio,
                measured_seed=fixed_hash(self.train_seed, step),
                timer=self.timers,
            )
            mini_batch_size = self.config.actor_rollout_ref.actor.ppo_mini_batch_size
            metrics |= scored | {
                "train/batch_size": float(len(batch)),
                "train/num_mini_batches": float(-(-len(batch) // mini_batch_size)),
            }
        with self.signals.held():  # which finds both models updated, or neither
            outcome = self.update(step, groups, kept, batch)
            outcome.metrics = metrics | outcome.metrics
            outcome.stop = stop
            self.note_point(step, outcome)
        return outcome

    def update(self, step: int, groups: Sequence[Group], kept: FilterResult, batch: Batch | None) -> StepOutcome:
        """Critic, gradient analysis and actor."""
        trainer = self.config.trainer
        metrics = self.update_critic(step, batch) if batch is not None else {}
        is_exit = False
        if self.gradient_reporter.is_due(step):
            with self.timers("gradient_analysis"):
                metrics |= self.gradient_reporter(step, groups, kept, batch)
            is_exit = trainer.exit_after_gradient_analysis
            metrics |= {"trainer/exited_after_gradient_analysis": 1.0} if is_exit else {}
        if batch is not None and not is_exit and step >= trainer.critic_warmup:
            metrics |= self.update_actor(step, batch)
        num_tokens = batch.num_tokens if batch else 0
        return StepOutcome(metrics=metrics, num_tokens=num_tokens, is_exit=is_exit, is_complete=False)

    def score_aside(self, groups: Sequence[Group], kept_ratio: float) -> Batch:
        """Score groups without a trace in the KL controller, the stage times or the metrics."""
        batch, _ = score(
            groups,
            self.config,
            self.workers,
            kl_controller=copy(self.kl_controller),
            kept_ratio=kept_ratio,
            measured_seed=self.train_seed,
            timer=lambda stage: nullcontext(),
        )
        return batch

    def update_critic(self, step: int, batch: Batch) -> Metrics:
        if not self.config.uses_critic:
            return {}
        if self.config.trainer.gradient_analysis_only:
            return {"critic/skipped_for_gradient_analysis_only": 1.0}
        with self.timers("update_critic"):
            return self.warn_of_skips("critic", step, self.workers.update_critic(batch, step=step))

    def update_actor(self, step: int, batch: Batch) -> Metrics:
        if self.config.trainer.gradient_analysis_only:
            return {"actor/skipped_for_gradient_analysis_only": 1.0}
        with self.timers("update_actor"):
            return self.warn_of_skips("actor", step, self.workers.update_actor(batch, step=step))

    def warn_of_skips(self, role: str, step: int, metrics: Metrics) -> Metrics:
        """A gradient that is not finite is skipped, but not in silence."""
        if skipped := metrics.get(f"{role}/skipped_steps"):
            print(
                f"warning: step {step} skipped {skipped:g} optimizer steps of the {role}: their gradients were not "
                f"finite ({role}/skipped_steps).",
                file=sys.stderr,
                flush=True,
            )
        return metrics

    def rollout(self, step: int) -> list[Episode]:
        """Fresh levels for every step; levels and noise follow from the seed and the step alone."""
        return self.workers.rollout(
            self.environments,
            base_seed=self.train_seed + (step - 1) * self.environments.num_groups,
            noise_seed=fixed_hash(self.train_seed, "training", step),
            params=sampling_params(self.config, self.workers.chat, is_validation=False),
            on_episode=self.trackers.begin_episodes(len(self.environments.seats)),
        )

    def validation(self, step: int) -> Metrics:
        with self.timers("testing"):
            metrics, episodes = self.validate(self.played)
        self.write_episodes(step, "val", episodes, is_due=True)
        self.note_signs("val", episodes)
        tags = names.by_tag(metrics, names.VALIDATION, names.SUCCESS)
        by_env = {tag: success([e for e in episodes if e.tag == tag]) for tag in tags}
        self.trackers.validated(step, by_env, success(episodes))
        num_rows = self.config.trainer.generations_to_log_to_wandb.val
        if num_rows > 0:
            shown = sorted(episodes, key=lambda e: fixed_hash(e.seed, "shown", e.member))[:num_rows]
            rows = [[e.tag, e.seed, _conversation(e), e.score, e.is_success] for e in shown]
            self.trackers.log_table(step, "val/generations", ["tag", "seed", "conversation", "score", "success"], rows)
        return metrics

    def write_episodes(self, step: int, kind: str, episodes: list[Episode], *, is_due: bool = False) -> None:
        """Into the run directory, compressed, and as plain JSON lines into a second folder where one is named."""
        trainer = self.config.trainer
        every = trainer.save_episodes_every
        if is_due or (every > 0 and step % every == 0):
            self.run.write_episodes(f"{kind}_step_{step}", episodes)
        second = trainer.rollout_data_dir if kind == "train" else trainer.validation_data_dir
        if second:
            RunDir(Path(second)).write_episodes(f"{kind}_step_{step}", episodes, is_compressed=False)

    def log_tables(self, step: int, kept: FilterResult) -> None:
        """The rewards of every group, and, on request, each group's deviation and fate."""
        rows = [[group_id, *rewards] for group_id, rewards in zip(kept.group_ids, kept.rewards, strict=True)]
        if not rows:
            return
        columns = ["group_id", *(f"reward_{member}" for member in range(self.environments.group_size))]
        self.trackers.log_table(step, "rollout/reward_table", columns, rows)
        if self.config.trainer.log_group_rv_table:
            chosen = set(kept.kept_ids)
            table = [
                [step, group_id, std, group_id in chosen]
                for group_id, std in zip(kept.group_ids, kept.reward_stds, strict=True)
            ]
            columns = ["step", "group_id", "reward_std", "selected"]
            self.trackers.log_table(step, "rollout/group_rv_table", columns, table)

    def note_point(self, step: int, outcome: StepOutcome) -> Point | None:
        """Remember what a checkpoint of this moment would hold, where checkpoints are wanted."""
        if self.config.trainer.save_freq <= 0:
            return None
        point = Point(step=step, state=self.state(step, outcome), num_levels=len(self.played))
        if not (outcome.is_exit or self.config.trainer.gradient_analysis_only):
            self.point = point
        return point

    def save_point(self) -> str:
        """Save the newest step that a signal left whole, where checkpoints are wanted; what was done, in words."""
        point = self.point
        if self.config.trainer.save_freq <= 0:
            return "nothing is saved (trainer.save_freq)"
        if point is None:
            return "no step was done yet" if self.start_step == 0 else f"no step was done since {self.start_step}"
        if not point.is_saved:
            self.save(point)
        return f"step {point.step} is saved"

    def last_good(self) -> str:
        """Where the weights were still whole."""
        newest = find_resume("auto", None, Path(self.config.trainer.default_local_dir))
        return f"The last good checkpoint is {newest}." if newest else "No checkpoint was saved before."

    def save(self, point: Point) -> None:
        """Write a checkpoint and remove those that are too old."""
        trainer = self.config.trainer
        root = Path(trainer.default_local_dir)
        if self.resumed is None or point.step != self.start_step:  # else its weights are there already
            state = point.state | {"played_levels": self.played.to_json(point.num_levels)}
            save_checkpoint(root, point.step, self.workers.savers(), state if self.workers.saves_all else None)
        point.is_saved = True
        if self.best is not None and self.best["step"] == point.step:
            name_best(root, point.step)
        keep = {"actor": trainer.max_actor_ckpt_to_keep, "critic": trainer.max_critic_ckpt_to_keep}
        rotate(root, keep, latest=point.step)

    def state(self, step: int, outcome: StepOutcome) -> dict[str, Any]:
        """What a resumed run continues from, beside weights and moments.

        The metrics of the step are logged after the checkpoint, with the time it took. A run killed in between finds
        them here.
        """
        return {
            "step": step,
            "origin": dict(self.origin),
            "train_seed": self.train_seed,
            "early_stop": self.early_stop.to_json(),
            "kl_controller": self.kl_controller.to_json(),
            "collapse": self.collapse_detector.to_json(),
            "timers": self.timers.state_dict(),
            "metrics": dict(outcome.metrics),
            "stop": outcome.stop,
            "num_tokens": outcome.num_tokens,
            "is_complete": outcome.is_complete,
            "best": self.best,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        control = self.config.algorithm.kl_ctrl
        self.early_stop.from_json(state["early_stop"])
        self.collapse_detector.load(state["collapse"])
        self.played.load(state.get("played_levels"))  # checkpoints of earlier versions do not have it
        self.timers.load_state_dict(state["timers"])
        self.kl_controller = make_kl_controller(
            control.type,
            kl_coef=control.kl_coef,
            target_kl=control.target_kl,
            horizon=control.horizon,
            state=state["kl_controller"],
        )
        if self.config.trainer.keep_best and state.get("best"):
            self.best = dict(state["best"])
            name_best(Path(self.config.trainer.default_local_dir), int(self.best["step"]))
        if self.config.trainer.resume_mode == "auto":
            self.resumed = StepOutcome(
                metrics=dict(state["metrics"]),
                stop=state["stop"],
                num_tokens=state.get("num_tokens", 0),
                is_complete=state.get("is_complete", True),
            )
            if self.resumed.is_complete:
                self.point = Point(step=self.start_step, state=dict(state), num_levels=len(self.played), is_saved=True)


def _conversation(episode: Episode) -> str:
    return "\n".join(f"[{message['role']}]\n{message['content']}" for message in episode.messages())
