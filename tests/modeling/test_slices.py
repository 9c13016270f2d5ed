"""Slices of a packed row: their gradients are those of passes of their own."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from ragen.config.schema import LoraConfig
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.lora import add_adapter
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack_apart
from ragen.modeling.slices import NotSliced, Slices
from tests.engine.families import FAMILIES, SHAPE, VOCAB, random_model

PARTS = ((3, 2), (1,), (2, 4, 2))
"""Lengths of the ends of the sequences of each slice, behind a common beginning."""


def sequences() -> list[list[list[int]]]:
    """All begin alike; only those of one slice may share that."""
    generator = torch.Generator().manual_seed(0)
    beginning = torch.randint(3, VOCAB, (20,), generator=generator).tolist()
    return [
        [beginning + torch.randint(3, VOCAB, (size,), generator=generator).tolist() for size in sizes]
        for sizes in PARTS
    ]


def mask_of(parts: list[list[list[int]]]) -> torch.Tensor:
    rows = [ids for part in parts for ids in part]
    mask = torch.zeros(len(rows), max(map(len, rows)))
    for row, ids in zip(mask, rows, strict=True):
        row[20 : len(ids)] = 1
    return mask


def sliced_gradients(model: nn.Module, weights: list[torch.Tensor], parts: list[list[list[int]]]) -> list:
    """Of two sums over the row of all parts, for each of the parts."""
    mask = mask_of(parts)
    packing = pack_apart(parts, torch.device("cpu"), mask=mask)
    with packed_attention(model, packing), Slices(model, weights, packing, list(map(len, parts)), mask) as slices:

        def score(hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logprobs = torch.log_softmax(logits_of(model, hidden), dim=-1)
            return logprobs.gather(1, targets[:, None])[:, 0], logprobs.exp().square().sum(-1)

        first, second = slices.head(score, hidden_states(model, packing)[packing.sampled], packing.targets)
        return [list(slices.gradients(each.sum(), keep=each is first)) for each in (first, second)]


def assert_same(found: list, expected: list) -> None:
    for slow, fast in zip(expected, found, strict=True):
        if slow is None:
            assert fast is None
        else:
            assert (fast - slow).norm() <= 1e-5 * (slow.norm() + 1)


@pytest.mark.parametrize("is_checkpointed", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("rank", [0, 2], ids=["all weights", "LoRA"])
@pytest.mark.parametrize("family", FAMILIES)
def test_slices_have_the_gradients_of_passes_of_their_own(family, rank, is_checkpointed):
    model = random_model(family)
    if rank:
        add_adapter(model, LoraConfig(rank=rank, alpha=8.0, target_modules="all-linear"), seed=1)
    if is_checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = sequences()
    together = sliced_gradients(model, weights, parts)
    for number, part in enumerate(parts):
        alone = sliced_gradients(model, weights, [part])
        for term in range(2):
            assert_same(together[term][number], alone[term][0])
    assert all("forward" not in vars(module) for module in model.modules())
    assert [weight for weight in model.parameters() if weight.requires_grad] == weights


def test_a_weight_that_is_used_outside_of_its_module_is_noticed():
    model = random_model("llama")
    attention = model.base_model.layers[0].self_attn
    plain = attention.forward
    attention.forward = lambda *args, **named: (
        plain(*args, **named)[0] + attention.o_proj.weight.sum(),
        None,
    )
    with pytest.raises(NotSliced, match="outside of its module"):
        sliced_gradients(model, list(model.parameters()), sequences())


def test_experts_are_noticed():
    config = Qwen3MoeConfig(**SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with pytest.raises(NotSliced, match="Router is not known to go token by token"):
        sliced_gradients(model, list(model.parameters()), sequences())
    assert all("forward" not in vars(module) for module in model.modules())


class Gate(nn.Module):
    """A weight for all, called in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * self.weight


@pytest.mark.parametrize(
    "call",
    [
        lambda gate, hidden: gate(hidden=hidden),
        lambda gate, hidden: hidden + gate(hidden[:, :3]).mean(1, keepdim=True),
        lambda gate, hidden: gate(hidden.mT).mT,
    ],
    ids=["by name", "other tokens", "tokens last"],
)
def test_a_module_that_is_called_in_another_way_is_noticed(call):
    model = random_model("llama")
    mlp = model.base_model.layers[0].mlp
    mlp.gate = Gate()
    plain = mlp.forward
    mlp.forward = lambda hidden: call(mlp.gate, plain(hidden))
    with pytest.raises(NotSliced, match="Gate is not known to go token by token"):
        sliced_gradients(model, list(model.parameters()), sequences())
