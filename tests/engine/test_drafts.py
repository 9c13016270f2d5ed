"""Guesses from what was said before, and when they are worth their check."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from ragen.engine.drafts import NONE, NUM_TRIALS, PAUSE, DraftCounts, Judge, SuffixIndex


def index(**texts: list[int]) -> SuffixIndex:
    """Texts in slots 0, 1, ..., each with room for 20 more tokens."""
    made = SuffixIndex(num_slots=8)
    for slot, text in enumerate(texts.values()):
        made.begin(slot, [], num_known=0, room=20)
        say(made, slot, *text)
    return made


def say(made: SuffixIndex, slot: int, *tokens: int) -> None:
    made.extend(np.full(len(tokens), slot), np.arange(len(tokens)), np.array(tokens))


def guess(made: SuffixIndex, slot: int, most: int = 3) -> list[int]:
    return [token for token in made.propose(np.array([slot]), most)[0].tolist() if token != NONE]


def test_what_followed_the_same_end_elsewhere_is_proposed():
    made = index(first=[5, 6, 7, 8], second=[1, 6, 7])
    assert guess(made, 1) == [8]
    assert guess(made, 0) == []  # nothing followed an 8 so far


def test_the_longest_agreement_wins_over_the_latest():
    made = index(long=[1, 2, 3, 4], short=[9, 3, 5], own=[1, 2, 3])
    assert guess(made, 2) == [4]


def test_of_equal_agreements_the_latest_wins():
    made = index(old=[3, 4], new=[3, 5], own=[3])
    assert guess(made, 2) == [5]


def test_a_reply_drafts_from_its_own_beginning():
    made = index(own=[7, 8, 9, 7, 8])
    assert guess(made, 0, most=4) == [9, 7, 8]
    say(made, 0, 9, 7)
    assert guess(made, 0, most=2) == [8, 9]


def test_tokens_of_several_replies_arrive_together_and_in_order():
    made = index(one=[1], two=[2])
    made.extend(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([11, 12, 21]))
    made.begin(2, [1], num_known=0, room=5)
    made.begin(3, [2], num_known=0, room=5)
    assert made.propose(np.array([2, 3]), 2).tolist() == [[11, 12], [21, NONE]]


def test_prompts_are_drafted_from_but_not_what_is_known_of_them():
    made = SuffixIndex(num_slots=2)
    prompt = list(range(100, 130))
    made.begin(0, prompt, num_known=0, room=5)
    made.begin(1, [*prompt, 50], num_known=30, room=5)
    say(made, 0, 110)
    assert guess(made, 0) == [111, 112, 113]
    say(made, 1, 105)
    assert guess(made, 1) == [106, 107, 108]


def test_texts_end_where_they_end_and_are_forgotten_when_cleared():
    made = index(first=[1, 2], second=[3, 1])
    assert guess(made, 1) == [2]  # and not the 3 of the next text
    made.clear()
    made.begin(1, [3, 1], num_known=0, room=5)
    assert guess(made, 1) == []


def test_the_text_grows_and_old_positions_hold():
    made = index(first=[1, 2, 3])
    for slot in range(1, 8):
        made.begin(slot, list(range(1000, 21_000)), num_known=0, room=400)
    made.begin(7, [1, 2], num_known=0, room=5)
    assert guess(made, 7) == [3]


def test_drafts_pause_when_they_gain_too_little_and_are_tried_again():
    judge = Judge()
    for _ in range(NUM_TRIALS):
        assert judge.is_worth_it
        judge.count(sessions=4, tokens=5)
    assert not judge.is_worth_it
    for _ in range(PAUSE):
        assert not judge.is_worth_it
        judge.skip()
    assert judge.is_worth_it


def test_drafts_go_on_while_they_gain_enough():
    judge = Judge()
    for _ in range(100):
        judge.count(sessions=4, tokens=8)
        assert judge.is_worth_it


def test_shares_of_all_processes_follow_from_their_summed_counts():
    ours, theirs = DraftCounts(launches=10), DraftCounts(launches=4)
    ours.add(sessions=1, drafted=1, accepted=1)
    theirs.add(sessions=2, drafted=7, accepted=3)
    both = asdict(theirs)
    summed = ours.summed(lambda counts: {name: count + both[name] for name, count in counts.items()})
    assert summed.metrics() == pytest.approx(
        {
            "rollout/decode_launches": 14,
            "rollout/draft_launches": 2,
            "rollout/draft_launches_saved": 1 + 1.5,
            "rollout/draft_acceptance": 4 / 8,
            "rollout/draft_tokens_per_launch": 1 + 4 / 3,
        }
    )
    assert DraftCounts().summed(lambda counts: both).metrics(), "one that played nothing has a share in the log, too"


def test_counts_become_metrics():
    counts = DraftCounts(launches=10)
    assert counts.metrics() == {}
    counts.add(sessions=2, drafted=8, accepted=6)  # 8 tokens for two sessions: three launches less
    assert counts.metrics() == pytest.approx(
        {
            "rollout/decode_launches": 10,
            "rollout/draft_launches": 1,
            "rollout/draft_launches_saved": 3,
            "rollout/draft_acceptance": 0.75,
            "rollout/draft_tokens_per_launch": 4,
        }
    )
