"""Several tokens of a session at once give what they give one after the other."""

import numpy as np
import pytest
import torch

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import CHUNK, BatchParams, noise_keys, sample
from ragen.modeling.kernels import sampling, session
from ragen.modeling.kernels.attention import PagedAttention
from ragen.modeling.kernels.verify import VerifyAttention, accept

pytestmark = CPU_ONLY


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, 8])
def test_attention_of_several_tokens_is_that_of_one_after_the_other(width):
    torch.manual_seed(0)
    heads, kv_heads, dim, positions, counts = 6, 2, 32, [5, 62, 128], [3, width, 1]  # the second crosses a page
    angles = torch.rand(192, dim // 2) * 6
    shape = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim, "scale": dim**-0.5, "eps": 1e-6}
    paged = PagedAttention(**shape, cos=angles.cos(), sin=angles.sin(), max_rows=3)
    memory = torch.randn(9, paged.layer_bytes // 4)
    state = torch.zeros(3, session.HEADER + 3, dtype=torch.int64)
    state[:, session.HEADER :] = torch.tensor([page.data_ptr() for page in memory]).view(-1, 3)
    qkv = torch.randn(3, width, (heads + 2 * kv_heads) * dim)
    before = memory.clone()

    blocks = torch.tensor([[slot, positions[slot], counts[slot]] for slot in range(3)] + [[0, 0, 0]])
    verify = VerifyAttention(paged, sessions=4, width=width)
    padded = torch.cat([qkv, torch.zeros(1, width, qkv.shape[2])]).flatten(0, 1)
    together = verify(0, padded, None, blocks.ravel(), state).view(4, width, -1)
    after = memory.clone()
    assert verify.splits > 1 and not verify.counters.any()

    memory.copy_(before)
    for offset in range(width):
        slots = torch.tensor([slot if offset < counts[slot] else -1 for slot in range(3)])
        state[:, session.POSITION] = torch.tensor(positions) + offset
        single = paged.decode(0, qkv[:, offset].contiguous(), None, slots, state)
        for slot in range(3):
            if offset < counts[slot]:
                torch.testing.assert_close(together[slot, offset], single[slot], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after, memory)


def sessions_state(seeds: list[int], counts: list[int]) -> torch.Tensor:
    state = torch.zeros(len(seeds), session.HEADER, dtype=torch.int64)
    state[:, session.SEED], state[:, session.COUNT] = torch.tensor(seeds), torch.tensor(counts)
    state[:, session.POSITION] = 40
    state[:, session.TEMPERATURE] = torch.from_numpy(np.ones(len(seeds)).view(np.int64))
    return state


def test_every_position_is_drawn_with_its_own_noise_and_the_state_stays():
    torch.manual_seed(1)
    logits, state = torch.randn(8, 50), sessions_state([11, 22], [0, 7])
    out, before = torch.full((4, 8), -1, dtype=torch.int32), state.clone()
    slots = torch.tensor([0, 0, 0, 0, 1, 1, -1, -1])
    sampling.draw(logits, slots, state, out, chunk=CHUNK, advance=False, width=4)
    params = BatchParams([SamplingParams(max_tokens=1)] * 8, logits.device)
    tokens, logprobs, _ = sample(logits, params, noise_keys([11] * 4 + [22] * 4, [0, 1, 2, 3, 7, 8, 9, 10]))
    assert out[0, :6].tolist() == tokens[:6].tolist()
    torch.testing.assert_close(out[1, :6].view(torch.float32), logprobs[:6], rtol=1e-4, atol=1e-5)
    assert out[0, 6:].tolist() == [-1, -1]
    assert torch.equal(state, before)


def test_tokens_are_taken_as_far_as_drafts_were_right():
    state = sessions_state([1, 2, 3], [5, 5, 5])
    out = torch.full((4, 16), -1, dtype=torch.int32)
    drawn = [[7, 8, 6, 3], [4, 4, 4, 4], [9, 0, 0, 0], [0, 0, 0, 0]]
    ids = [[5, 7, 8, 9], [5, 1, 4, 4], [5, 9, 0, 0], [0, 0, 0, 0]]
    slots = [[0, 0, 0, 0], [1, 1, 1, 1], [2, -1, -1, -1], [-1, -1, -1, -1]]
    out[0] = torch.tensor(drawn).ravel()
    accept(torch.tensor(ids).ravel(), torch.tensor(slots).ravel(), state, out, width=4)
    # 7 and 8 were right and 6 is drawn instead of 9; a wrong first draft; no draft, though 0 would be a token.
    assert out[3, :12].view(3, 4).tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert state[:, session.TOKEN].tolist() == [6, 4, 9]
    assert state[:, session.COUNT].tolist() == [8, 6, 6]
    assert state[:, session.POSITION].tolist() == [43, 41, 41]
