"""Keys of the algorithm and of the training loop.

Tested in tests/config/test_schema.py.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from ragen.config.actor_rollout_ref import KlType
from ragen.config.bounds import Count, CountOrZero, FolderName, Name, NotNegative, Positive, ZeroToOne
from ragen.config.estimators import ESTIMATORS, Need, declaration
from ragen.config.extensions import Choice

CONTINUING = {
    "disable": "trainer.resume_mode=auto",
    "resume_path": "trainer.resume_mode=auto trainer.resume_from_path=null",
}
"""resume_mode -> what the command of a run needs besides, to continue from the run's own newest checkpoint."""
TRACKERS = ("console", "wandb", "tensorboard", "mlflow", "trackio")


def how_to_resume(resume_mode: str | None) -> str:
    """How a run of that mode continues, as a sentence without its end."""
    change = f", with {CONTINUING[resume_mode]}," if resume_mode in CONTINUING else ""
    return f"The same command{change} resumes from the newest checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class KlCtrlConfig:
    """Weight of the KL in the reward."""

    type: Annotated[Literal["fixed", "adaptive"], "Keep the weight, or steer the KL towards target_kl."]
    kl_coef: Annotated[NotNegative, "Weight of the KL in the reward."]
    horizon: Annotated[Count, "Samples over which the adaptive weight reacts."]
    target_kl: Annotated[Positive, "KL the adaptive weight aims at."]


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmConfig:
    """Rewards to advantages."""

    adv_estimator: Annotated[str, "Advantage estimator.", Choice("estimators", tuple(ESTIMATORS))]
    gamma: Annotated[ZeroToOne, "Discount per token."]
    lam: Annotated[ZeroToOne, "Lambda of GAE."]
    bi_level_gae: Annotated[bool, "GAE over turns, then over the tokens of each turn."]
    high_level_gamma: Annotated[ZeroToOne, "Discount per turn of bi-level GAE and GiGPO."]
    gigpo_step_weight: Annotated[NotNegative, "Weight of the step advantages beside those of the episodes in GiGPO."]
    norm_adv_by_std_in_grpo: Annotated[bool, "Divide by the group's standard deviation; False is Dr.GRPO."]
    soft_advantage_reweight: Annotated[bool, "Weight each group by its reward deviation (not with gae)."]
    zero_task_advantage: Annotated[bool, "Set all advantages to 0: only KL and entropy train."]
    use_kl_in_reward: Annotated[bool, "Subtract the KL to the reference model from the token rewards."]
    kl_penalty: Annotated[KlType, "Estimator of the KL in the reward."]
    kl_ctrl: KlCtrlConfig

    @property
    def needs(self) -> frozenset[Need]:
        """What the estimator reads besides rewards."""
        return declaration(self.adv_estimator).needs

    @property
    def estimator(self) -> str:
        """The function that computes advantages, by its name in ragen.algorithms."""
        return (self.bi_level_gae and declaration(self.adv_estimator).bi_level) or self.adv_estimator


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStopConfig:
    """When a run is given up."""

    variance_baseline_steps: Annotated[Count, "First steps whose mean in-group reward deviation is the baseline."]
    variance_window: Annotated[CountOrZero, "Steps in a row below the threshold that stop the run; 0 is off."]
    variance_factor: Annotated[ZeroToOne, "The threshold as a share of the baseline."]
    min_val_success: Annotated[ZeroToOne, "A validation below this success counts as low."]
    low_success_patience: Annotated[CountOrZero, "Low validations in a row that stop the run; 0 is off."]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationsToLogConfig:
    """Sizes of the sample tables in trackers."""

    val: Annotated[CountOrZero, "Validation episodes shown in the sample table."]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """The training loop, its outputs and its diagnostics."""

    project_name: Annotated[FolderName, "Project of the run in trackers and folders."]
    experiment_name: Annotated[FolderName, "Name of the run."]
    default_local_dir: Annotated[Name, "Run directory: config, metrics, episodes and checkpoints."]
    local_log_dir: Annotated[Name, "Folder for the results of stand-alone evaluations."]
    total_training_steps: Annotated[Count, "The run ends after this step."]
    seeds: Annotated[Count, "Runs of this configuration, each with a training seed of its own; beyond 1 with a table."]
    runs_per_gpu: Annotated[Count, "Of several seeds, how many share a GPU, or the CPU, at a time."]
    val_before_train: Annotated[bool, "Validate before the first step."]
    val_only: Annotated[bool, "Validate and end."]
    preflight: Annotated[bool, "Say at the start what silence, a random policy and the solver earn."]
    test_freq: Annotated[int, "Validate every so many steps and at the last; 0 or less is off."]
    validation_steps: Annotated[Count, "Validation rollouts that are averaged; what they count is added up."]
    val_greedy: Annotated[bool, "Validate greedily, too (val-env-greedy/...)."]
    save_freq: Annotated[int, "Save every so many steps, at the last and when a signal ends the run; 0 or less is off."]
    max_actor_ckpt_to_keep: Annotated[Count | None, "Newest actor checkpoints that are kept; null keeps all."]
    max_critic_ckpt_to_keep: Annotated[Count | None, "Newest critic checkpoints that are kept; null keeps all."]
    keep_best: Annotated[bool, "Save when a validation is the best so far, and keep that checkpoint whatever its age."]
    resume_mode: Annotated[
        Literal["auto", "disable", "resume_path"],
        "Continue from the newest checkpoint if there is one, never, or from resume_from_path.",
    ]
    resume_from_path: Annotated[Name | None, "A global_step_<N> folder."]
    resume_with_changes: Annotated[bool, "With resume_mode=auto, continue a run with settings other than its own."]
    n_gpus_per_node: Annotated[Count, "GPUs of one machine; 1 also on a CPU."]
    nnodes: Annotated[Count, "Machines."]
    max_restarts: Annotated[CountOrZero, "Times a run on several devices resumes from its newest checkpoint by itself."]
    watchdog_minutes: Annotated[Positive, "Report which worker waits for which when none moved for this long."]
    hang_timeout_minutes: Annotated[Positive, "Stop when no worker moved for this long."]
    logger: Annotated[
        tuple[Annotated[str, Choice("trackers", TRACKERS)], ...], "Where metrics go besides the run directory."
    ]
    metric_function: Annotated[
        str | None,
        "Function of the episodes of a rollout whose numbers are logged as own/<rollout>/<name>; null adds none.",
        Choice("metrics"),
    ]
    console: Annotated[
        Literal["compact", "full"],
        "On the console a few numbers of each step (a terminal: a live display), or all metrics.",
    ]
    generations_to_log_to_wandb: GenerationsToLogConfig
    balance_batch: Annotated[bool, "Give every GPU a similar number of tokens."]
    critic_warmup: Annotated[CountOrZero, "Steps before this train the critic only."]
    save_episodes_every: Annotated[int, "Write the training episodes of every so many steps; 0 or less is off."]
    rollout_data_dir: Annotated[Name | None, "Second folder for training episodes as JSONL; null writes none."]
    validation_data_dir: Annotated[Name | None, "Second folder for validation episodes as JSONL; null writes none."]
    log_group_rv_table: Annotated[bool, "Log the reward deviation of every group as a table that grows by each step."]
    gradient_analysis_mode: Annotated[bool, "Probe the gradient by reward-variance bucket."]
    gradient_analysis_every: Annotated[int, "Probe at steps 1, 1+N, 1+2N, ...; 0 or less is off."]
    gradient_analysis_env_groups: Annotated[Count | None, "Groups of a separate probe batch; null as in training."]
    gradient_analysis_group_size: Annotated[Count | None, "Group size of a separate probe batch; null as in training."]
    gradient_analysis_log_prefilter: Annotated[bool, "Probe the batch before filtering, too."]
    gradient_analysis_only: Annotated[bool, "Update neither actor nor critic."]
    exit_after_gradient_analysis: Annotated[bool, "End the run right after a probe."]
    save_at_gradient_analysis: Annotated[bool, "Where saving is on, save the analysed steps, too."]
    early_stop: EarlyStopConfig

    def is_analysed(self, step: int) -> bool:
        """Whether gradient analysis is due at a step: 1, 1 + N, 1 + 2N, ..., once the actor trains."""
        is_on = self.gradient_analysis_mode and self.gradient_analysis_every > 0 and step >= self.critic_warmup
        return is_on and (step - 1) % self.gradient_analysis_every == 0
