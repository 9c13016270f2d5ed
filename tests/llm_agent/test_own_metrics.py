"""A metric function adds its numbers, and is dropped with one warning where it fails."""

import logging

from ragen.llm_agent.own_metrics import OwnMetrics
from tests.trainer.runs import episode


def test_numbers_are_named_by_the_rollout():
    found = OwnMetrics("tests.api.own:lengths")("train", [episode(0, [1.0]), episode(1, [0.0, 0.0])])
    assert found == {"own/train/longest_reply": 1.0, "own/train/mean_reply": 1.0}
    assert OwnMetrics(None)("train", []) == {}


def test_a_function_that_fails_is_off_with_one_warning(caplog):
    for name, why in (("bad_metrics", "'two words': 1.0 is no metric"), ("lengths", "ValueError: max()")):
        metrics = OwnMetrics(f"tests.api.own:{name}")
        with caplog.at_level(logging.WARNING):
            assert [metrics("val-env", []) for _ in range(2)] == [{}, {}]
        assert len(caplog.records) == 1 and why in caplog.text and "trainer.metric_function" in caplog.text
        caplog.clear()
