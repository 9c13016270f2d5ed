"""Which prompt tokens go through the model together."""

import pytest

from ragen.engine.graph.prompts import Piece, plan, prompt_batch
from ragen.engine.sessions import Group
from tests.engine.requests import open_session


def test_prompts_fill_a_pass_and_go_on_in_the_next():
    assert plan([20, 50], 64, block=16) == [[Piece(0, 0, 20), Piece(1, 0, 32)], [Piece(1, 32, 50)]]


@pytest.mark.parametrize("budget", [16, 100, 1000])
def test_every_token_is_planned_once_and_no_pass_is_too_large(budget):
    lengths = [1, 16, 17, 300, 5, 64]
    passes = plan(lengths, budget, block=16)
    planned = [
        [i for one in passes for p in one if p.index == index for i in range(p.start, p.stop)] for index in range(6)
    ]
    assert planned == [list(range(length)) for length in lengths]
    assert max(sum(piece.padded(16) for piece in one) for one in passes) <= budget


def test_a_pass_is_told_which_tokens_stand_where_and_who_draws():
    leader = open_session(3, [11, 12, 13, 14, 15, 16], num_cached=1)
    groups = [Group(leader, [open_session(5, [11, 12, 13, 14, 15, 16])]), Group(open_session(0, [21, 22, 23]))]
    whole, begun = Piece(0, 0, 5), Piece(1, 0, 2)
    batch = prompt_batch([whole, begun], groups, block=4)
    assert batch.ids.tolist() == [12, 13, 14, 15, 16, 0, 0, 0, 21, 22, 0, 0]
    assert batch.blocks.tolist() == [[3, 1, 4], [3, 5, 1], [0, 0, 2]]  # slot, first position, tokens
    assert batch.samples.tolist() == [[3, 4], [5, 4]]  # after the token 16; the other prompt is not complete
    rest = prompt_batch([Piece(1, 2, 3)], groups, block=4)
    assert (rest.ids.tolist(), rest.blocks.tolist()) == ([23, 0, 0, 0], [[0, 2, 1]])
    assert rest.samples.tolist() == [[0, 0]]
