"""When a reply is over."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.engine.base import SamplingParams, StopReason
from ragen.engine.stopping import StopRules, can_complete, decoded
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from tests.engine.requests import Letters
from tests.llm_agent.templates import family_tokenizer


def test_the_quick_test_lets_no_end_pass():
    rules = StopRules(Letters(), vocab=97)
    params = SamplingParams(max_tokens=5, stop_token_ids=(3,), stop_strings=("ab",))
    index = rules.index(params)
    assert rules.index(SamplingParams(max_tokens=9, stop_token_ids=(3,), stop_strings=("ab",))) == index
    other = rules.index(SamplingParams(max_tokens=5))
    tokens = np.array([3, 1, 4, 3])  # the letters d, b, e, d
    assert rules.may_end(np.array([index, index, index, other]), tokens).tolist() == [True, True, False, False]
    assert rules.reason(params, [3]) is StopReason.STOP_TOKEN
    assert rules.reason(params, [5, 0, 1]) is StopReason.STOP_STRING
    assert rules.reason(params, [5, 2, 1]) is None
    assert rules.reason(params, [5, 5, 5, 5, 5]) is StopReason.LENGTH


@pytest.mark.parametrize(
    ("before", "last", "is_possible"),
    [
        ("think", ">", False),
        ("answer", ">", True),
        ("</", "answer>", True),
        ("<answer", ">", False),
        ("</answer", ">\n", True),
        ("wer", "></", True),
        ("x", "</answer> y", True),
        (" ", ">", True),  # decoded alone it may have lost what stands before
        ("\ufffd", ">", True),
    ],
)
def test_the_token_before_tells_most_other_tags_apart(before, last, is_possible):
    assert can_complete(before, last, ("</answer>",)) is is_possible


def test_a_space_that_a_token_loses_when_it_stands_alone_hides_no_stop_string():
    assert can_complete("x", ">", ("x >",))
    assert can_complete("x ", ">", ("x  >",))  # the spaces of both tokens, of which one is lost


PIECES = st.sampled_from(["x", "x ", " x", " >", ">", "> ", "<x", " ", "  ", "y"])


@settings(max_examples=500, deadline=None)
@given(before=st.lists(PIECES, min_size=1, max_size=3), last=PIECES)
@pytest.mark.parametrize("string", ["x >", "x  >", "x> >", "<x>", " x>", "x   >"])
def test_no_end_passes_where_tokens_lose_their_first_space(string, before, last):
    """Each token decoded alone lacks the space in front that it has among others."""
    text, whole = "".join(before), "".join([*before, last])
    if whole.find(string, max(0, len(text) - len(string) + 1)) >= 0:
        assert can_complete(before[-1].removeprefix(" "), last.removeprefix(" "), (string,))


@cache
def tokenizer():
    return load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))


TEXTS = st.lists(st.sampled_from(["</answer>", "<answer>", "</think>", "answer", ">", "</", " ", "Up", "é", "\n"]))


@settings(max_examples=200, deadline=None)
@given(texts=TEXTS, tokens=st.lists(st.integers(min_value=0, max_value=120), max_size=5))
def test_replies_end_where_the_text_of_all_their_tokens_says(texts, tokens):
    ids = tokens + tokenizer().encode("".join(texts), add_special_tokens=False)
    rules, params = StopRules(tokenizer()), SamplingParams(max_tokens=10**6, stop_strings=("</answer>",))
    for end in range(1, len(ids) + 1):
        plain = tokenizer().decode(ids[:end]).count("</answer>") > tokenizer().decode(ids[: end - 1]).count("</answer>")
        assert (rules.reason(params, ids[:end]) is StopReason.STOP_STRING) == plain


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.sampled_from(["Turn", " level", " ", ": ", "Turn 1", " count", "at most"]), max_size=6))
@pytest.mark.parametrize("string", ["l ", ": ", "n 1", " l", "t  c"])
def test_a_stop_string_that_ends_with_a_space_ends_a_reply_of_a_tokenizer_that_drops_first_spaces(string, words):
    tokenizer = family_tokenizer("phi3")
    ids = tokenizer.encode("Go" + "".join(words), add_special_tokens=False)
    rules, params = StopRules(tokenizer), SamplingParams(max_tokens=10**6, stop_strings=(string,))
    for end in range(2, len(ids) + 1):
        now, before = tokenizer.decode(ids[:end]), tokenizer.decode(ids[: end - 1])
        is_new = now.find(string, max(0, len(before) - len(string) + 1)) >= 0
        assert (rules.reason(params, ids[:end]) is StopReason.STOP_STRING) == is_new


@pytest.mark.parametrize("cleans_up", [False, True])
def test_many_rows_are_decoded_as_the_tokenizer_does(cleans_up):
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    tokenizer.clean_up_tokenization_spaces = cleans_up
    rows = [[token, other] for token in range(len(tokenizer)) for other in (0, token)]
    assert decoded(tokenizer, rows) == tokenizer.batch_decode(rows)
