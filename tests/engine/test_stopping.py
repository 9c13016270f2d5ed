"""When a reply is over."""

import numpy as np

from ragen.engine.base import SamplingParams, StopReason
from ragen.engine.stopping import StopRules
from tests.engine.requests import Letters


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
