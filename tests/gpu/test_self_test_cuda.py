"""On a GPU attention, norms and gated layers are other kernels: they keep sequences apart as exactly."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Lfm2Config, Qwen3MoeConfig

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


def test_convolutions_are_refused():
    torch.manual_seed(0)
    config = Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().cuda()
    with pytest.raises(ModelUnavailable, match="tokens meet outside"):
        check_trainable(model)
