"""Answers as JSON."""

import json

from ragen.view.reading.encoding import to_json


def test_json_holds_no_number_that_browsers_refuse():
    assert json.loads(to_json({"a": float("nan"), "b": "\ud800"})) == {"a": None, "b": "\ud800"}
