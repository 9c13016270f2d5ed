"""Keys of the models: actor, reference, rollout and critic.

Tested in tests/config/test_validate.py.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from ragen.config.bounds import (
    Bound,
    Count,
    CountOrZero,
    Decay,
    Name,
    NotNegative,
    Positive,
    Share,
    Spelling,
    TopK,
    ZeroToOne,
    number,
)
from ragen.config.extensions import Choice
from ragen.engine.registry import ENGINES

KlName = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full", "k1+", "k3+"]
KlType = Annotated[KlName, Spelling(lambda value: value.replace("-", "_") if isinstance(value, str) else value)]
LossAggMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
CheckpointContent = Literal["model", "optimizer", "extra", "hf_model"]
POLICY_LOSSES = ("ppo", "gspo", "cispo", "sapo")
FILTER_STRATEGIES = ("top_p", "top_k", "top_k_abs", "min_p", "z_score")
FilterType = Literal["largest", "smallest"]
FilterMetric = Annotated[
    Literal["reward_variance", "reward", "reward_sum", "entropy", "entropy_variance", "length", "success_variance"],
    Spelling(lambda value: {"reward_std": "reward_variance", "entropy_std": "entropy_variance"}.get(str(value), value)),
]
TopPMode = Literal["linear", "softmax", "softmax_z"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimConfig:
    """AdamW and its schedule."""

    lr: Annotated[ZeroToOne, "Learning rate of AdamW."]
    betas: Annotated[tuple[Decay, Decay], "Decay of AdamW's two moments, for example [0.9,0.999]."]
    weight_decay: Annotated[NotNegative, "Decoupled weight decay."]
    lr_warmup_steps: Annotated[int, "Steps of linear warm-up from 0; negative takes lr_warmup_steps_ratio."]
    lr_warmup_steps_ratio: Annotated[ZeroToOne, "Warm-up as a share of all steps."]
    lr_scheduler_type: Annotated[Literal["constant", "cosine"], "Learning rate after the warm-up."]
    min_lr_ratio: Annotated[ZeroToOne, "Lowest learning rate of the cosine, as a share of lr."]
    num_cycles: Annotated[NotNegative, "Periods of the cosine; 0.5 falls once."]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """What checkpoints hold."""

    save_contents: Annotated[
        tuple[CheckpointContent, ...],
        "Parts that are saved; [model] cannot resume training.",
        Bound(lambda parts: "model" in parts or "hf_model" in parts, "Add model: no checkpoint without weights."),
    ]
    load_contents: Annotated[tuple[CheckpointContent, ...], "Parts that are loaded on resume."]


@dataclass(frozen=True, kw_only=True, slots=True)
class FsdpConfig:
    """How a sharded model is kept."""

    offload_policy: Annotated[bool, "Keep weights, gradients and moments in the CPU's memory, and step there."]


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateConfig:
    """What the updates of actor and critic share."""

    ppo_mini_batch_size: Annotated[Count, "Most samples per optimizer step, over all GPUs."]
    mini_batch_sizes: Annotated[
        Literal["even", "full"],
        "even: as few mini batches as fit, of equal size; full: full ones and a smaller last one.",
    ]
    ppo_micro_batch_size_per_gpu: Annotated[Count, "Samples per forward and backward pass on one GPU."]
    ppo_epochs: Annotated[Count, "Passes over each batch."]
    shuffle: Annotated[bool, "Draw the mini batches in random order, fixed by seed.train and the step."]
    use_dynamic_bsz: Annotated[bool, "Fill micro batches up to a number of tokens instead of samples."]
    ppo_max_token_len_per_gpu: Annotated[Count, "Most tokens of a micro batch when use_dynamic_bsz is on."]
    loss_agg_mode: Annotated[LossAggMode, "How token losses become one number."]
    grad_clip: Annotated[Positive, "Largest norm of the gradient."]
    optim: OptimConfig
    checkpoint: CheckpointConfig
    fsdp_config: FsdpConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorConfig(UpdateConfig):
    """The policy's update."""

    policy_loss: Annotated[
        str,
        "Clipped ratio per token, per sequence, or as a weight of the gradient.",
        Choice("losses", POLICY_LOSSES),
    ]
    clip_ratio: Annotated[NotNegative, "Default of clip_ratio_low."]
    clip_ratio_low: Annotated[ZeroToOne, "The probability ratio is clipped at 1 minus this."]
    clip_ratio_high: Annotated[NotNegative, "The probability ratio is clipped at 1 plus this."]
    clip_ratio_c: Annotated[
        float, "Bound of the loss for negative advantages (dual clip); above 1.", number(lambda x: x > 1, "above 1")
    ]
    entropy_coeff: Annotated[NotNegative, "Weight of the entropy bonus."]
    entropy_from_logits_with_chunking: Annotated[bool, "Compute the entropy a chunk of tokens at a time: less memory."]
    use_kl_loss: Annotated[bool, "Add the KL to the reference model to the loss; loads that model."]
    kl_loss_coef: Annotated[NotNegative, "Weight of the KL term."]
    kl_loss_type: Annotated[KlType, "Estimator of the KL term."]
    filter_loss_scaling: Annotated[
        Literal["none", "linear", "sqrt"], "Scale advantages by the share of groups the filter kept."
    ]
    grpo_advantage_length_weight: Annotated[bool, "Divide advantages by the relative reply length (not with gae)."]


@dataclass(frozen=True, kw_only=True, slots=True)
class RefConfig:
    """The frozen reference model."""

    log_prob_micro_batch_size_per_gpu: Annotated[Count, "Samples per forward pass of the reference model."]
    fsdp_config: FsdpConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Weights and memory."""

    path: Annotated[Name, "Folder, hub name, or tiny (embedded)."]
    enable_gradient_checkpointing: Annotated[bool, "Recompute activations in the backward pass: less memory."]


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How a token is drawn."""

    do_sample: Annotated[bool, "False replies greedily."]
    top_p: Annotated[Share, "Smallest set of tokens with this much probability."]
    top_k: Annotated[TopK, "The k likeliest tokens; -1 keeps all."]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValKwargsConfig(SamplingConfig):
    """Sampling during validation."""

    temperature: Annotated[NotNegative, "Divides the logits; 0 is greedy."]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiConfig:
    """An OpenAI-compatible server; its key comes from the variable OPENAI_API_KEY only."""

    base_url: Annotated[Name | None, "Address of the API; null reads the variable OPENAI_BASE_URL."]
    model: Annotated[Name | None, "Model name the API expects; null sends model_path."]
    max_concurrency: Annotated[Count, "Most requests under way at once."]
    timeout_s: Annotated[Positive, "Seconds to wait for one reply."]
    max_retries: Annotated[CountOrZero, "Further tries of a failed request."]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig(SamplingConfig):
    """Sampling, the engine, the group filter and the probe's buckets."""

    name: Annotated[Literal[*ENGINES], "Engine that writes the replies; api is for evaluation."]  # type: ignore[valid-type]
    temperature: Annotated[Positive, "Divides the logits, when sampling and when log-probs are computed."]
    val_kwargs: ValKwargsConfig
    stop_strings: Annotated[
        tuple[str, ...],
        "A reply ends with the first of these.",
        Bound(lambda texts: "" not in texts, "An empty text would end every reply. Remove it."),
    ]
    response_length: Annotated[Count, "Most tokens of one reply."]
    max_model_len: Annotated[Count, "Most tokens of the whole context."]
    max_num_seqs: Annotated[Count, "Most episodes decoded at once."]
    max_num_batched_tokens: Annotated[Count, "Most prompt tokens processed at once."]
    gpu_memory_utilization: Annotated[Share, "Share of the GPU's memory for the engine."]
    tensor_model_parallel_size: Annotated[Count, "GPUs that share one copy of the model in vLLM."]
    enforce_eager: Annotated[bool, "Decode without CUDA graphs."]
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        "Precision of a model that only plays, as in `ragen eval`; auto: bfloat16 on a GPU, float32 on a CPU.",
    ]
    free_cache_engine: Annotated[bool, "Free the engine's cache while the model trains."]
    drafts: Annotated[
        bool, "While few replies are open, guess and check several tokens in one launch; with CUDA graphs only."
    ]
    canary_bound: Annotated[
        Positive | None,
        "Largest mean |vLLM - trainer| log-prob of a fixed text after a weight sync; null: 1e-4, in bfloat16 0.2.",
    ]
    log_prob_micro_batch_size_per_gpu: Annotated[Count, "Samples per forward pass when log-probs are computed."]
    old_log_probs: Annotated[
        Literal["recompute", "engine"], "Log-probs of the sampling policy: by the trainer, or as the engine gave them."
    ]
    importance_cap: Annotated[
        Positive | None, "Weight tokens by trainer / engine probability, at most this; null does not. With recompute."
    ]
    rollout_filter_strategy: Annotated[
        str, "How groups are chosen by their group scores.", Choice("filters", FILTER_STRATEGIES)
    ]
    rollout_filter_value: Annotated[
        float,
        "Share of all group scores (top_p), share of groups (top_k), number of groups (top_k_abs), share of the best "
        "(min_p), standard deviations above the mean (z_score).",
    ]
    rollout_filter_type: Annotated[FilterType, "Prefer large or small group scores."]
    rollout_filter_metric: Annotated[FilterMetric, "Group score; the variances are standard deviations."]
    rollout_filter_include_zero: Annotated[bool, "Groups with group score 0 may be kept."]
    rollout_filter_top_p_prob_mode: Annotated[
        TopPMode, "What top_p sums: the group scores, their softmax, or the softmax of their z-scores."
    ]
    rollout_filter_selection_eps: Annotated[NotNegative, "Slack of linear top_p; group scores with a smaller sum go."]
    rollout_filter_empty_stop_steps: Annotated[int, "Stop after so many empty steps in a row; 0 or less never."]
    gradient_analysis_num_buckets: Annotated[Count, "Buckets of the modes quantile and reward_mean."]
    gradient_analysis_bucket_mode: Annotated[
        Literal["quantile", "fixed_rv", "reward_mean"],
        "Buckets of equal size, edges at reward deviation 0, 1, 2, 3, 4, 5, or equal ranges of the mean reward.",
    ]
    api: ApiConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorRolloutRefConfig:
    """The policy: how it is loaded, sampled, filtered and trained."""

    actor: ActorConfig
    ref: RefConfig
    model: ModelConfig
    rollout: RolloutConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class CriticConfig(UpdateConfig):
    """The value model."""

    enable: Annotated[bool | None, "Train a critic; null does so for the estimators that need values."]
    cliprange_value: Annotated[Positive, "New values stay this close to the old ones."]
    model: ModelConfig
