"""The verdicts of benchmarks/engine_vllm.py, with engines that write what a test says; vLLM is not needed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import engine_vllm

from ragen.engine.base import Request, SamplingParams
from ragen.engine.scripted import ScriptedEngine

ASKED = [Request(session=i, prompt_ids=[1], params=SamplingParams(max_tokens=9), seed=i) for i in range(10)]


class Rows(list):
    def add(self, name: str, is_right: bool, text: str) -> None:
        self.append((name, is_right, text))


def engine_of(*replies: list[int]) -> ScriptedEngine:
    return ScriptedEngine(lambda request: replies[request.session])


def verdict(ours: Sequence[list[int]], theirs: Sequence[list[int]], name: str = "sampled") -> tuple[bool, str]:
    rows, engine = Rows(), engine_of(*theirs)
    engine.canary_bound = 0.1  # type: ignore[attr-defined]
    engine_vllm.compare(name, ASKED[: len(ours)], engine_of(*ours), engine, None, rows)  # type: ignore[arg-type]
    ((_, is_right, text),) = rows
    return is_right, text


def test_replies_are_compared_as_far_as_their_tokens_are_the_same():
    is_right, text = verdict([[1, 2, 3], [4]], [[1, 2, 5], [4]])
    assert is_right
    assert text.startswith("1 of 2 replies equal, 0 part at a tie, 1 elsewhere; 3 of 4 tokens before;")


def test_replies_without_a_token_in_common_are_wrong_and_say_so_in_numbers():
    is_right, text = verdict([[1], [2]], [[3], [4]])
    assert not is_right
    assert text.startswith("0 of 2 replies equal, 0 part at a tie, 2 elsewhere; 0 of 2 tokens before;")


@pytest.mark.parametrize(("num_other", "is_right"), [(0, True), (1, True), (2, False)])
def test_replies_after_a_sleep_must_be_those_of_before_but_for_a_tenth(monkeypatch, num_other, is_right):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))
    is_new = []
    engine = ScriptedEngine(lambda request: [7 if is_new and request.session < num_other else 5])
    engine.can_sleep = True  # type: ignore[attr-defined]
    engine.load_weights = lambda weights, score: is_new.append(True) or {"rollout/sleep_freed_gb": 1.0}  # type: ignore
    rows = Rows()
    engine_vllm.sleep_and_wake(engine, SimpleNamespace(state_dict=dict), ASKED, rows)  # type: ignore[arg-type]
    ((_, found, text),) = rows
    assert found is is_right
    assert text.endswith(f"{10 - num_other} of 10 replies as before")
