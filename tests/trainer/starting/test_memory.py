"""The estimate of memory, by hand and for the promise of the documents."""

from dataclasses import replace

import pytest
from transformers import MambaConfig, Qwen2Config

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.modeling import host_memory
from ragen.modeling.families import FAMILIES, Family
from ragen.models.resolve import resolve_model
from ragen.trainer.starting import memory
from ragen.trainer.starting.memory import (
    GIB,
    MemoryEstimate,
    check_memory,
    estimate_memory,
    graph_bytes,
    host_advice,
    larger_passes,
    memory_advice,
)

QWEN_05B = Qwen2Config(
    hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, intermediate_size=4864,
    vocab_size=151936,
)  # fmt: skip


def need(*overrides: str) -> MemoryEstimate:
    return estimate_memory(load_config("_2_sokoban", overrides), QWEN_05B, 494_000_000, device_memory=24e9)


def test_ppo_with_half_a_billion_parameters_fits_in_24_gb_with_the_defaults():
    assert need().weights == 2 * 494e6 * 2
    assert need().optimizer == 2 * 494e6 * 12
    assert need().cache == 0.3 * 24e9
    assert need().total < 23e9


@pytest.mark.parametrize(
    ("shape", "num_parameters", "micro_batch", "measured"),
    [
        ({"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864}, 494_032_768, 8, 29.5),
        ({"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864}, 494_032_768, 32, 63.2),
        ({"hidden_size": 2048, "num_hidden_layers": 36, "intermediate_size": 11008}, 3_085_938_688, 4, 120.8),
    ],
)
def test_the_estimate_is_near_what_an_h200_measured(shape, num_parameters, micro_batch, measured):
    """docs/performance.md: PPO with a reference, sequences of 1506 tokens, no gradient checkpointing."""
    model = Qwen2Config(**shape, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936)
    config = load_config(
        "_2_sokoban",
        [
            f"micro_batch_size_per_gpu={micro_batch}",
            "actor_rollout_ref.rollout.max_model_len=1506",
            "actor_rollout_ref.rollout.response_length=100",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.model.enable_gradient_checkpointing=False",
            "trainer.gradient_analysis_mode=False",
        ],
    )
    estimate = estimate_memory(config, model, num_parameters, device_memory=150e9)
    assert estimate.total / GIB == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("free", "overrides", "says"),
    [
        (140e9, [], "Passes of 1 sample let the GPU wait: micro_batch_size_per_gpu=16 fits"),
        (
            140e9,
            ["micro_batch_size_per_gpu=4"],
            "Passes of 4 samples let the GPU wait: micro_batch_size_per_gpu=16 fits",
        ),
        (140e9, ["ppo_mini_batch_size=8"], "micro_batch_size_per_gpu=8 fits"),
        (140e9, ["micro_batch_size_per_gpu=8"], ""),
        (140e9, ["ppo_mini_batch_size=2"], ""),
        (140e9, ["actor_rollout_ref.actor.use_dynamic_bsz=True"], ""),
        (24e9, [], ""),
    ],
)
def test_a_gpu_that_waits_for_small_passes_is_said_at_the_start(free, overrides, says):
    config = load_config("_2_sokoban", overrides)
    line = larger_passes(config, QWEN_05B, 494_000_000, free=free, total=free)
    assert says in line
    assert bool(says) == bool(line)


def test_a_critic_a_reference_and_adapters_change_the_need():
    assert need().total - need("algorithm.adv_estimator=grpo").total == pytest.approx(14 * 494e6)
    assert need("actor_rollout_ref.actor.use_kl_loss=True").weights == 3 * 494e6 * 2
    assert need("lora.rank=8").optimizer < 0.02 * need().optimizer


def test_gradient_analysis_holds_a_second_gradient_and_a_byte_for_each_weight():
    assert need("trainer.gradient_analysis_mode=False").gradients == 4 * 494e6
    assert need("trainer.gradient_analysis_mode=True").gradients == 9 * 494e6


def test_vllm_takes_its_whole_share():
    rows = "actor_rollout_ref.rollout.max_num_seqs=1"
    assert need(rows).cache < 0.1 * 24e9
    assert need(rows, "actor_rollout_ref.rollout.name=vllm").cache == pytest.approx(0.3 * 24e9)


def test_several_gpus_hold_a_part_each_and_a_whole_policy():
    eight = need("trainer.n_gpus_per_node=8", "system.CUDA_VISIBLE_DEVICES='0,1,2,3,4,5,6,7'")
    assert eight.weights == 494e6 * 2
    assert eight.optimizer == need().optimizer / 8
    assert eight.total < need().total


def test_offloaded_parts_count_for_the_cpu():
    offload = "actor_rollout_ref.actor.fsdp_config.offload_policy=True"
    one = need(offload)
    assert one.weights == 494e6 * 2, "the whole policy plays"
    assert (one.optimizer, one.gradients) == (0, 0)
    assert one.host == (12 + 12 + 9 + 4) * 494e6, (
        "weights and moments of both, two gradients and a byte of the actor, one gradient of the critic"
    )
    assert "GiB of the CPU's memory" in str(one)
    actor_only = need(offload, "critic.fsdp_config.offload_policy=False")
    assert actor_only.optimizer == 12 * 494e6
    two = need(offload, "trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES='0,1'")
    assert two.host == (one.host + 494e6) / 2, "each rank has all signs of gradient analysis"


def test_a_run_that_cannot_fit_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda device: (1e6, None))
    with pytest.raises(ConfigError, match=r"lora\.rank"):
        check_memory(load_config("quickstart"), resolve_model("tiny/frozen_lake"), "cpu")


def test_the_line_says_how_much_is_needed_and_free():
    line = check_memory(load_config("quickstart"), resolve_model("tiny/frozen_lake"), "cpu")
    assert line.startswith("Memory: about ") and line.endswith(" free on cpu, because torch finds no GPU 0.")
    cpu = load_config("quickstart", ["system.CUDA_VISIBLE_DEVICES=''"])
    assert check_memory(cpu, resolve_model("tiny/frozen_lake"), "cpu").endswith(" free on cpu.")
    assert memory.device_memory("cpu")[0] > 0.1 * GIB


def test_a_container_that_leaves_too_little_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(host_memory, "cgroup_room", lambda: [1e6])
    with pytest.raises(ConfigError, match=r"0\.0 GiB are free on cpu"):
        check_memory(load_config("quickstart"), resolve_model("tiny/frozen_lake"), "cpu")


GRPO = "algorithm.adv_estimator=grpo"
VLLM = "actor_rollout_ref.rollout.name=vllm"


def test_the_graphs_of_the_engine_are_counted_where_there_are_any():
    pool = 2**26 + 8192 * 2 * (4 * 896 + 4864)  # workspace; states and gated product of a pass
    assert graph_bytes(QWEN_05B, pass_tokens=8192, num_slots=256) == pool + 2 * 256 * 151936
    assert need().engine == pool + 2 * need_slots() * 151936
    assert need("actor_rollout_ref.rollout.enforce_eager=True").engine == need(VLLM).engine == 0
    assert need().total - need("actor_rollout_ref.rollout.enforce_eager=True").total == need().engine


def test_the_logits_of_drafts_are_counted_where_they_do_not_fit_in_those_of_the_slots():
    drafts, few = "actor_rollout_ref.rollout.drafts=True", "actor_rollout_ref.rollout.max_num_seqs=10"
    assert need(drafts, few).engine - need(few).engine == 2 * 8 * 10 * 151936  # eight tokens of each session
    assert need_slots() >= 128 and need(drafts).engine == need().engine
    slots = {"pass_tokens": 8192, "num_slots": 128}
    assert graph_bytes(QWEN_05B, **slots, drafts=True) == graph_bytes(QWEN_05B, **slots)


def test_the_size_of_micro_batches_counts_only_where_they_have_one():
    dynamic = "actor_rollout_ref.actor.use_dynamic_bsz=True"
    for chunking in (False, True):
        logits = f"actor_rollout_ref.actor.entropy_from_logits_with_chunking={chunking}"
        one, many = (need(dynamic, logits, f"micro_batch_size_per_gpu={size}") for size in (1, 16))
        assert one == many
    config = load_config("_2_sokoban", [dynamic, "micro_batch_size_per_gpu=16"])
    assert "smaller actor_rollout_ref.actor.ppo_max_token_len_per_gpu" in memory_advice(config)
    assert "ppo_micro_batch_size_per_gpu" not in memory_advice(config)


def test_a_pass_bounded_by_tokens_holds_no_more_than_there_are_samples():
    """Two episodes of at most 1000 tokens, 50 of them sampled: logits of 100 tokens, not of 16384."""
    small = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.max_model_len=1000", "agent_proxy.max_turn=1"]
    small += ["actor_rollout_ref.rollout.response_length=50", "trainer.gradient_analysis_mode=False"]
    dynamic = need(*small, "actor_rollout_ref.actor.use_dynamic_bsz=True", "ppo_mini_batch_size=2")
    assert dynamic.activations == need(*small, "micro_batch_size_per_gpu=2").activations
    probed = [*small, "trainer.gradient_analysis_mode=True", "es_manager.train.env_groups=1"]
    probed += ["es_manager.train.group_size=4", "ppo_mini_batch_size=2"]
    analysed = need(*probed, "actor_rollout_ref.actor.use_dynamic_bsz=True")
    assert analysed.activations == need(*small, "micro_batch_size_per_gpu=4").activations


def test_a_family_that_only_decodes_has_graphs_and_plain_layers(monkeypatch):
    fused = need()
    monkeypatch.setitem(FAMILIES, "qwen2", Family(has_graph_decoder=True))
    assert need().engine == fused.engine
    assert need().activations > fused.activations


def need_slots() -> int:
    """Episodes of 3600 tokens, 12288 bytes each, in 30 % of 24 GB."""
    config = load_config("_2_sokoban").actor_rollout_ref.rollout
    return int(0.3 * 24e9 // (config.max_model_len * 2 * 24 * 2 * 64 * 2))


def test_a_cache_that_stays_adds_to_what_training_needs():
    kept = need("actor_rollout_ref.rollout.free_cache_engine=False")
    assert kept.total == pytest.approx(need().total + min(kept.cache, kept.gradients + kept.activations))


def test_a_sleeping_vllm_keeps_its_copy_of_the_weights_in_the_memory_of_the_cpu():
    assert need(VLLM).host == 2 * 494e6
    assert need(VLLM, "actor_rollout_ref.rollout.free_cache_engine=False").host == 0


def test_a_share_too_small_for_the_copy_of_the_weights_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda device: (24e9, 24e9))
    config = load_config("quickstart", [VLLM, "actor_rollout_ref.rollout.gpu_memory_utilization=1e-6"])
    with pytest.raises(ConfigError, match=r"Its copy of the weights alone needs"):
        check_memory(config, resolve_model("tiny/frozen_lake"), "cuda")


def test_nobody_is_advised_to_do_what_he_does():
    assert "grpo" in memory_advice(load_config("_2_sokoban"))
    assert "max_model_len" in memory_advice(load_config("_2_sokoban"))
    assert "grpo" not in memory_advice(load_config("_2_sokoban", [GRPO]))
    assert "lora" not in memory_advice(load_config("_2_sokoban", ["lora.rank=8"]))
    assert "the CPU's memory instead" in memory_advice(load_config("_2_sokoban"))
    assert "the CPU's memory instead" not in memory_advice(load_config("_2_sokoban"), "cpu")
    assert "gradient_checkpointing" not in memory_advice(
        load_config("_2_sokoban", ["actor_rollout_ref.model.enable_gradient_checkpointing=True"])
    )


def test_smaller_passes_are_not_advised_where_the_models_alone_are_too_large():
    config = load_config("_2_sokoban", ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"])
    assert "ppo_micro_batch_size_per_gpu" in memory_advice(config)
    advice = memory_advice(config, has_room_for_models=False)
    assert "micro_batch" not in advice and "max_num_seqs" not in advice
    assert "grpo" in advice and "lora.rank=64" in advice and "offload_policy=True" in advice


def test_what_is_kept_on_the_gpu_is_something_that_was_not():
    offload = "actor_rollout_ref.actor.fsdp_config.offload_policy=True"
    assert "critic.fsdp_config.offload_policy=False" in host_advice(load_config("_2_sokoban", [offload]))
    assert "actor_rollout_ref.actor.fsdp_config.offload_policy=False" in host_advice(
        load_config("_2_sokoban", [offload, GRPO])
    )
    asleep = host_advice(load_config("_2_sokoban", [VLLM]))
    assert asleep == "Keep more on the GPU: actor_rollout_ref.rollout.free_cache_engine=False."


def test_a_model_without_attention_has_no_cache_and_is_refused_later_by_what_it_computes():
    mamba = MambaConfig(hidden_size=64, num_hidden_layers=2, vocab_size=100)
    estimate = estimate_memory(load_config("_2_sokoban"), mamba, 1_000_000, device_memory=None)
    assert estimate.cache == 0 and estimate.weights == 2 * 4e6


def test_the_line_says_which_parts_are_there_at_the_same_time():
    estimate = MemoryEstimate(weights=GIB / 4, optimizer=GIB / 2, cache=GIB * 3 / 4, gradients=GIB / 4, activations=GIB)
    assert str(estimate) == (
        "about 2.00 GiB (weights 0.25, optimizer 0.50, engine 0.00; beside them to play: cache 0.75, or to train: "
        "gradients 0.25, activations 1.00)"
    )
    assert str(replace(estimate, stays=True)) == (
        "about 2.75 GiB (weights 0.25, optimizer 0.50, engine 0.00, cache 0.75, gradients 0.25, activations 1.00)"
    )
