"""On a GPU attention, norms and gated layers are other kernels: they keep sequences apart as exactly."""

import pytest
import torch
from transformers import AutoModelForCausalLM, DeepseekV3Config, Lfm2Config, Qwen3MoeConfig

from ragen.engine.native.self_test import check_decoding
from ragen.errors import ModelUnavailable
from ragen.modeling.self_test import check_trainable
from tests.engine.families import FAMILIES, SHAPE, random_model, wide

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

FUSED = ("qwen2", "qwen3", "llama", "mistral")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_pass(family, dtype):
    model = random_model(family, dtype).cuda()
    check_trainable(model)
    check_decoding(model, is_trained=True)


@pytest.mark.parametrize("family", FUSED)
def test_fused_layers_pass(family):
    check_trainable(wide(family).to("cuda", torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_pass(dtype):
    torch.manual_seed(0)
    config = Qwen3MoeConfig(**SHAPE, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().cuda()
    check_trainable(model)
    check_decoding(model, is_trained=True)


def test_heads_that_flash_attention_does_not_know_pass():
    torch.manual_seed(0)
    ranks = {"q_lora_rank": 16, "kv_lora_rank": 16, "num_key_value_heads": 4}
    sizes = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}  # keys of 24 numbers, values of 16
    config = DeepseekV3Config(**SHAPE | ranks, **sizes, first_k_dense_replace=2)
    check_trainable(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().cuda())


def test_convolutions_are_refused():
    torch.manual_seed(0)
    config = Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().cuda()
    with pytest.raises(ModelUnavailable, match="tokens meet outside"):
        check_trainable(model)
