"""The native engine on a GPU. Run there: pytest -q -m gpu tests/gpu"""

import pytest
import torch

from ragen.engine.native.engine import NativeEngine
from tests.engine.families import FAMILIES, random_model
from tests.engine.requests import forward_logprobs, prompt, request, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_replies_equal_those_of_the_cpu(family):
    requests = [request(i, prompt(3 + 5 * i, seed=i), seed=i, max_tokens=12) for i in range(6)]
    on_cpu = run(NativeEngine(random_model(family)), requests)
    on_gpu = run(NativeEngine(random_model(family).cuda()), requests)
    for session in on_cpu:
        assert on_gpu[session].token_ids == on_cpu[session].token_ids
        assert on_gpu[session].logprobs == pytest.approx(on_cpu[session].logprobs, abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_logprobs_agree_with_a_plain_forward_pass_over_two_turns(family):
    model = random_model(family, torch.bfloat16).cuda()
    engine = NativeEngine(model)
    ids = prompt(20)
    for turn in range(2):
        completion = run(engine, [request(0, ids, seed=turn)])[0]
        with torch.device("cuda"):
            expected = forward_logprobs(model, ids + completion.token_ids, len(ids))
        difference = torch.tensor(completion.logprobs) - torch.tensor(expected)
        # One unit in the last place of a bfloat16 logit near 8 is 0.06.
        assert difference.abs().mean() < 0.1
        ids = [*ids, *completion.token_ids, 5, 6]
