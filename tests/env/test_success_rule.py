"""When an episode counts as solved, in a few words."""

import numpy as np
import pytest

from ragen.env.success_rule import parse_rule


@pytest.mark.parametrize(
    ("rule", "info", "is_success"),
    [
        ("info.won", {"won": True}, True),
        ("info.won", {"won": np.bool_(False)}, False),
        ("info.won", {}, False),
        ("info.distance < 0.1", {"distance": np.float32(0.05)}, True),
        ("info.distance<0.1 and reward>=2", {"distance": 0.05}, True),
        ("reward == 3", {}, False),
    ],
)
def test_a_rule_reads_the_sum_of_rewards_and_the_info(rule, info, is_success):
    assert parse_rule(rule, "success")(reward=2.0, is_terminated=False, info=info) is is_success


def test_a_success_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match="finite"):
        parse_rule("info.won", "success")(reward=0.0, is_terminated=True, info={"won": float("nan")})
