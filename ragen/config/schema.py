"""The whole configuration: the type and meaning of every key. The values are in config/*.yaml."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ragen.config.actor_rollout_ref import ActorRolloutRefConfig, CriticConfig
from ragen.config.bounds import (
    LARGEST_COUNT,
    Bound,
    Count,
    CountOrZero,
    Decay,
    Name,
    Positive,
    Seed,
    Spelling,
    ZeroToOne,
    number,
)
from ragen.config.extensions import Choice
from ragen.config.trainer import AlgorithmConfig, TrainerConfig
from ragen.engine.registry import ENGINES

LARGEST_POOL = 100_000
"""Levels kept of a tag: their state is in every checkpoint."""
MOST_REFILLS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemConfig:
    """The machine."""

    CUDA_VISIBLE_DEVICES: Annotated[
        str,
        "Comma list of GPU ids; as many as trainer.n_gpus_per_node. Empty runs on the CPU.",
        Spelling(lambda value: str(value) if type(value) is int else value),  # one id, typed without quotes
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedConfig:
    """All randomness of a run derives from these."""

    train: Annotated[Seed | None, "Seed of the first training level, none of validation's; null draws one."]
    val: Annotated[Seed, "Seed of the first validation level; the levels are the same at every validation."]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraConfig:
    """Low-rank adapters, for actor and critic."""

    rank: Annotated[CountOrZero, "Rank of the adapters; 0 trains all weights."]
    alpha: Annotated[Positive, "Scale of the adapters, divided by the rank."]
    target_modules: Annotated[
        str | tuple[str, ...],
        "Modules that get an adapter: names, or all-linear.",
        Bound(lambda x: len(x) > 0 and all(x), "Set it to all-linear, or to module names such as [q_proj,v_proj]."),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class RayInitConfig:
    """Arguments of ray.init."""

    num_cpus: Annotated[Count | None, "CPU cores Ray may use; null takes all."]
    address: Annotated[Name | None, "Ray cluster to join (auto, or host:port); null starts Ray on this machine."]


@dataclass(frozen=True, kw_only=True, slots=True)
class RayConfig:
    """Ray, used with several GPUs."""

    ray_init: RayInitConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardNormalizationConfig:
    """Rescaling of episode rewards before advantages."""

    grouping: Annotated[
        Literal["state", "inductive", "batch"], "Episodes normalised together: one level, one tag, or all."
    ]
    method: Annotated[
        Literal["identity", "mean", "mean_std", "asym_clip"], "What is done to the episode rewards of one grouping."
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentProxyConfig:
    """How a model plays an episode."""

    context_window_mode: Annotated[
        Literal["full", "limited_multi_turn", "single_turn"],
        "What the model sees: the whole conversation, the last turns, or one turn with a summary.",
    ]
    max_context_window: Annotated[int, "Turns visible in the two limited modes; negative shows all."]
    max_turn: Annotated[Count, "Most turns (model replies) of an episode."]
    action_sep: Annotated[Name, "Separates the actions of one answer, for example ||."]
    max_actions_per_turn: Annotated[Count, "Most actions taken from one answer."]
    example_answer: Annotated[bool, "The prompt shows a finished answer, made of actions drawn from the level's seed."]
    answer_parsing: Annotated[
        Literal["strict", "lenient"],
        "How actions are read: split at action_sep alone, or also at commas and lines, without numbers and quotes.",
    ]
    enforce_max_tokens: Annotated[bool, "Cut a reply at its tag's max_tokens, if that is less than response_length."]
    use_turn_scores: Annotated[bool, "Reward each turn at its end instead of the sum at the end of the episode."]
    enable_think: Annotated[bool, "Replies hold a thought before the answer."]
    reward_normalization: RewardNormalizationConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfigsConfig:
    """Which environments make up the groups."""

    tags: Annotated[tuple[str, ...], "Environments to play, names of custom_envs."]
    n_groups: Annotated[tuple[int, ...], "Groups of each tag, in the order of tags; they sum to env_groups."]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvSetConfig:
    """The environments of one kind of rollout."""

    env_groups: Annotated[Count, "Groups per rollout; each group has its own level."]
    group_size: Annotated[Count, "Episodes of one group, all on the same level."]
    env_configs: EnvConfigsConfig

    @property
    def group_tags(self) -> list[str]:
        """[groups] The tag of each group."""
        pairs = zip(self.env_configs.tags, self.env_configs.n_groups, strict=True)
        return [tag for tag, count in pairs for _ in range(count)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelPoolConfig:
    """The levels that training keeps, with es_manager.train.levels=pool or pass_rate."""

    size: Annotated[
        int,
        "Levels kept of each tag, at least as many as it has groups.",
        number(lambda x: 1 <= x <= LARGEST_POOL, f"from 1 to {LARGEST_POOL}"),
    ]
    uniform_share: Annotated[ZeroToOne, "pass_rate: share of the draws that take any level of the pool, all alike."]
    decay: Annotated[Decay, "Weight of a visit in a level's pass rate, against the visit after it."]
    renew_after: Annotated[
        CountOrZero,
        "pass_rate: visits in a row that solved all, or none, after which a new level replaces the level; 0: never.",
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSetConfig(EnvSetConfig):
    """The environments of training, and which levels they play."""

    levels: Annotated[
        Literal["fresh", "pool", "pass_rate"],
        "Levels of a step: never played before, a pool's in turn, or those of a pool that are solved half of the time.",
    ]
    level_pool: LevelPoolConfig
    refill: Annotated[
        int,
        "Most further rollouts of a step that replace groups which the filter dropped by new ones; 0 is off.",
        number(lambda x: 0 <= x <= MOST_REFILLS, f"from 0 to {MOST_REFILLS}"),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class EsManagerConfig:
    """Environments of training and validation."""

    format_penalty: Annotated[
        float,
        "Added to the episode reward for each turn without a usable answer.",
        number(lambda x: x <= 0, "0 or less"),
    ]
    reward_function: Annotated[
        str | None,
        "Function of a finished episode whose result replaces the sum of its environment's rewards; null keeps it.",
        Choice("rewards"),
    ]
    train: TrainSetConfig
    val: EnvSetConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class CollapseDetectionConfig:
    """Mutual information between prompt and thought (full context with thoughts only)."""

    compute_freq: Annotated[int, "Measure at step 1 and every so many steps; 0 or less is off."]
    micro_batch_size: Annotated[Count, "Thoughts scored after each prompt of a forward pass."]
    first_turn_enabled: Annotated[bool, "Measure on the first turns."]
    multi_turn_enabled: Annotated[bool, "Measure on turns drawn from whole episodes."]
    num_samples: Annotated[
        int | Literal["all"],
        "Turns to draw, or all.",
        number(lambda x: x == "all" or 1 <= x <= LARGEST_COUNT, "at least 1 and at most 10^9, or all"),
    ]
    std_eps: Annotated[Positive, "Added to the standard deviation in the z-scores."]
    ema_decay: Annotated[Decay, "Weight of the past in the running standard deviation."]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvTag:
    """One row of custom_envs. The last four fields have defaults, so that a new tag is four lines."""

    env_type: Annotated[Name, "Name of the environment in ragen.env.registry, or one's own as module:Class."]
    max_actions_per_traj: Annotated[Count, "Most actions of an episode."]
    env_instruction: Annotated[str, "The task in a few sentences, for the system message."]
    max_tokens: Annotated[
        Count | None,
        "Length of a reply as told to the model; a limit with agent_proxy.enforce_max_tokens. null: the environment's.",
    ]
    parallel_friendly: Annotated[bool, "The environment may be stepped from several threads."] = False
    max_workers: Annotated[Count, "Threads that step this tag when it is parallel_friendly."] = 1
    step_timeout: Annotated[
        float | None,
        "Seconds that a step or reset may take; null sets no limit.",
        Bound(lambda s: s is None or s > 0, "Set a number of seconds above 0, or null for no limit."),
    ] = 60.0
    env_config: Annotated[dict[str, Any] | None, "Options of the environment's own config class."] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The root; attribute paths are those of the YAML files and of the command line."""

    system: SystemConfig
    seed: SeedConfig
    model_path: Annotated[Name, "Model of actor, reference and critic: a folder, a hub name, or tiny (embedded)."]
    micro_batch_size_per_gpu: Annotated[Count, "Default of the two ppo_micro_batch_size_per_gpu."]
    log_prob_micro_batch_size_per_gpu: Annotated[Count, "Default of the two log_prob_micro_batch_size_per_gpu."]
    ppo_mini_batch_size: Annotated[Count, "Default of the two ppo_mini_batch_size."]
    enable_response_mask: Annotated[
        bool,
        "Train sampled tokens only; True is the only choice.",
        Bound(bool, "Nothing else is trained. Set it to True."),
    ]
    grpo_advantage_length_weight: Annotated[bool, "Default of the actor's key of the same name."]
    lora: LoraConfig
    ray_kwargs: RayConfig
    actor_rollout_ref: ActorRolloutRefConfig
    critic: CriticConfig
    algorithm: AlgorithmConfig
    trainer: TrainerConfig
    agent_proxy: AgentProxyConfig
    es_manager: EsManagerConfig
    collapse_detection: CollapseDetectionConfig
    custom_envs: Annotated[dict[str, EnvTag], "The environments by tag."]

    @property
    def uses_critic(self) -> bool:
        """A critic is trained: asked for, or needed by the estimator."""
        return "values" in self.algorithm.needs if self.critic.enable is None else self.critic.enable

    @property
    def uses_reference(self) -> bool:
        """A KL term needs the reference model; without one it is neither loaded nor run."""
        return self.actor_rollout_ref.actor.use_kl_loss or self.algorithm.use_kl_in_reward

    @property
    def num_ranks(self) -> int:
        """Devices that train together."""
        return self.trainer.n_gpus_per_node * self.trainer.nnodes

    @property
    def ranks_per_engine(self) -> int:
        """Of these devices, those that share an engine."""
        rollout = self.actor_rollout_ref.rollout
        return rollout.tensor_model_parallel_size if ENGINES[rollout.name].spans_ranks else 1

    @property
    def offloaded(self) -> dict[str, bool]:
        """Role of each model that is trained or scored with -> whether its shards are in the CPU's memory."""
        parts = self.actor_rollout_ref
        roles = {"actor": parts.actor.fsdp_config} | ({"critic": self.critic.fsdp_config} if self.uses_critic else {})
        if self.uses_reference and self.lora.rank == 0:  # with LoRA the reference is the actor without its adapter
            roles["ref"] = parts.ref.fsdp_config
        return {role: fsdp.offload_policy for role, fsdp in roles.items()}

    @property
    def uses_fsdp(self) -> bool:
        """Models are sharded, in processes of Ray: one for each of several devices, or with shards offloaded."""
        return self.num_ranks > 1 or any(self.offloaded.values())
