"""What benchmarks/parts/real_rollout.py counts, on an engine that a test makes up."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from parts import real_rollout
from parts.real_rollout import RealRollout, counted, real_config


class DecodingRunner:
    def decode(self, slots, **_):
        return "decoded"

    def prefill(self, batch, truncated):
        return "prefilled"


class CheckingRunner(DecodingRunner):
    def verify(self, slots, tokens, drafts, positions):
        return "checked"


@pytest.mark.parametrize("runner", [DecodingRunner(), CheckingRunner()])
def test_every_launch_of_a_runner_is_counted_and_the_runner_is_left_as_it_was(runner):
    measured, expected = RealRollout(), [3]
    with counted(SimpleNamespace(runner=runner), measured):
        assert runner.prefill("batch", []) == "prefilled"
        assert runner.decode([1, 2, 3], is_new=True) == "decoded"
        if isinstance(runner, CheckingRunner):
            assert runner.verify([1, 2], [7, 7], [[8], [8]], [0, 0]) == "checked"
            expected.append(2)
    assert (measured.batches, measured.num_prefills) == (expected, 1)
    assert vars(runner) == {}


@pytest.mark.parametrize("drafts", [False, True])
def test_the_engine_is_the_one_that_the_configuration_asks_for(monkeypatch, drafts):
    asked = {}
    monkeypatch.setattr(real_rollout, "native_engine", lambda *_, **options: asked.update(options))
    monkeypatch.setattr(real_rollout, "build_proxy", lambda *_: None)
    monkeypatch.setattr(real_rollout, "build_chat", lambda *_: None)
    monkeypatch.setattr(real_rollout, "EsManager", lambda *_: None)
    load = real_rollout.load_config
    words = [f"actor_rollout_ref.rollout.drafts={drafts}"]
    monkeypatch.setattr(real_rollout, "load_config", lambda name, changes: load(name, [*changes, *words]))
    real_rollout._players(real_config("tiny", groups=1, group_size=1, turns=1), None, None)
    assert asked["drafts"] is drafts
