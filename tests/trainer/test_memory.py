"""The estimate of memory, by hand and for the promise of the documents."""

import pytest
from transformers import Qwen2Config

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.models.resolve import resolve_model
from ragen.trainer import memory
from ragen.trainer.memory import GIB, MemoryEstimate, check_memory, estimate_memory

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


def test_a_critic_a_reference_and_adapters_change_the_need():
    assert need().total - need("algorithm.adv_estimator=grpo").total == pytest.approx(14 * 494e6)
    assert need("actor_rollout_ref.actor.use_kl_loss=True").weights == 3 * 494e6 * 2
    assert need("lora.rank=8").optimizer < 0.02 * need().optimizer


def test_several_gpus_hold_a_part_each_and_a_whole_policy():
    eight = need("trainer.n_gpus_per_node=8", "system.CUDA_VISIBLE_DEVICES='0,1,2,3,4,5,6,7'")
    assert eight.weights == 494e6 * 2
    assert eight.optimizer == need().optimizer / 8
    assert eight.total < need().total


def test_a_run_that_cannot_fit_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda device: (1e6, None))
    with pytest.raises(ConfigError, match=r"lora\.rank"):
        check_memory(load_config("quickstart"), resolve_model("tiny/frozen_lake"), "cpu")


def test_the_line_says_how_much_is_needed_and_free():
    line = check_memory(load_config("quickstart"), resolve_model("tiny/frozen_lake"), "cpu")
    assert line.startswith("Memory: about ")
    assert memory.device_memory("cpu")[0] > 0.1 * GIB
