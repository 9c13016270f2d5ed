"""The open replies of the graph engine, with tokens that a test makes up."""

from __future__ import annotations

import numpy as np
import torch

from ragen.engine.base import StopReason
from ragen.engine.drafts import NONE, SuffixIndex
from ragen.engine.graph.replies import ReplyTable
from ragen.engine.stopping import StopRules
from tests.engine.requests import open_session, prompt


def table(*sessions) -> ReplyTable:
    replies = ReplyTable(4, StopRules(None, vocab=97))
    replies.open(sessions)
    return replies


def results(*tokens: int) -> torch.Tensor:
    """[3, rows]: tokens, log-probs of -0.5 and entropies of 2 as the kernels write them, and a row nobody asked for."""
    numbers = torch.zeros(3, len(tokens) + 1, dtype=torch.int32)
    numbers[0, :-1] = torch.tensor(tokens)
    numbers[1:, :-1] = torch.tensor([[-0.5], [2.0]]).view(torch.int32)
    return numbers


def test_a_reply_ends_with_its_stop_token_and_carries_what_was_drawn():
    session = open_session(2, prompt(3), stop_token_ids=(9,))
    replies = table(session)
    slots = replies.unfinished()
    assert slots.tolist() == [2]
    assert replies.collect(replies.launch(slots, results(5))) == []
    [(ended, reply, reason)] = replies.collect(replies.launch(slots, results(9)))
    assert (ended, reason) == (session, StopReason.STOP_TOKEN)
    assert (reply.token_ids, reply.logprobs, reply.entropies) == ([5, 9], [-0.5] * 2, [2.0] * 2)
    assert not replies.is_open(2)


def test_tokens_launched_before_the_end_was_seen_are_thrown_away():
    replies = table(open_session(0, prompt(3), stop_token_ids=(9,)), open_session(1, prompt(3)))
    slots = replies.unfinished()
    first, late = replies.launch(slots, results(9, 4)), replies.launch(slots, results(6, 5))
    assert [session.slot for session, _, _ in replies.collect(first)] == [0]
    replies.open([open_session(0, prompt(2))])  # another reply has the slot by now
    assert replies.collect(late) == []
    assert replies.launched.tolist()[:2] == [0, 2]


def test_no_more_tokens_are_launched_than_a_reply_may_have():
    replies = table(open_session(0, prompt(3), max_tokens=1), open_session(1, prompt(3), max_tokens=2))
    slots = replies.unfinished()
    launch = replies.launch(slots, results(3, 4))
    assert not replies.are_all_unfinished(slots)
    assert replies.unfinished().tolist() == [1]
    [(session, reply, reason)] = replies.collect(launch)
    assert (session.slot, reply.token_ids, reason) == (0, [3], StopReason.LENGTH)


def test_what_a_check_drew_behind_the_end_is_not_drafted_from():
    index = SuffixIndex(4)
    replies = ReplyTable(4, StopRules(None, vocab=97), index)
    sessions = [open_session(0, prompt(3), stop_token_ids=(9,)), open_session(1, prompt(3))]
    replies.open(sessions)
    for slot in range(2):
        index.begin(slot, [], num_known=0, room=20)
    checked = torch.zeros(4, 6, dtype=torch.int32)
    checked[0], checked[3] = torch.tensor([5, 9, 7, 6, 8, 4]), 1  # three tokens of each reply, all taken
    [(_, reply, _)] = replies.collect(replies.launch(np.array([0, 1]), checked))
    assert reply.token_ids == [5, 9]
    index.begin(2, [5], num_known=0, room=5)
    index.begin(3, [6], num_known=0, room=5)
    assert index.propose(np.array([2, 3]), 3).tolist() == [[9, NONE, NONE], [8, 4, NONE]]


def test_a_longer_reply_widens_the_table_and_keeps_what_is_there():
    replies = table(open_session(0, prompt(3), max_tokens=2))
    replies.collect(replies.launch(np.array([0]), results(7)))
    replies.open([open_session(1, prompt(3), max_tokens=50)])
    [(_, reply, _)] = replies.collect(replies.launch(np.array([0]), results(8)))
    assert reply.token_ids == [7, 8]


def test_only_replies_with_a_nucleus_or_a_top_k_ask_for_truncation():
    replies = table(open_session(0, prompt(3)), open_session(1, prompt(3), top_p=0.5))
    assert replies.truncated(np.array([0])) == []
    assert [(r.session, r.params.top_p) for r in replies.truncated(np.array([0, 1]))] == [(0, 1.0), (1, 0.5)]


def test_a_closed_slot_is_open_no_more():
    replies = table(open_session(0, prompt(3)), open_session(1, prompt(3)))
    replies.close(0)
    assert replies.unfinished().tolist() == [1]
    replies.clear()
    assert replies.unfinished().tolist() == []


def test_memory_for_results_is_used_again_once_they_have_been_taken_in():
    session = open_session(0, prompt(3), max_tokens=9)
    replies = table(session)
    slots = replies.unfinished()
    first, second = replies.launch(slots, results(3)), replies.launch(slots, results(4))
    assert second.arrival is not first.arrival
    replies.collect(first)
    third = replies.launch(slots, results(5))
    assert third.arrival is first.arrival
    other_shape = replies.launch(slots, torch.cat([results(6), results(6)], dim=1))
    assert other_shape.arrival is not second.arrival
    for launch in (second, third, other_shape):
        replies.collect(launch)
    for _ in range(4):
        replies.collect(replies.launch(slots, results(7)))
    [(_, reply, _)] = replies.collect(replies.launch(slots, results(8)))
    assert reply.token_ids == [3, 4, 5, 6, 7, 7, 7, 7, 8]
