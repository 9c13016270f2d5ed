"""Answers as JSON."""

import json

from ragen.view.encoding import finite, to_json


def test_json_holds_no_number_that_browsers_refuse():
    assert finite({"a": [1.0, float("nan")], "b": (float("inf"), "x")}) == {"a": [1.0, None], "b": [None, "x"]}
    assert json.loads(to_json({"a": float("nan"), "b": "\ud800"})) == {"a": None, "b": "\ud800"}
