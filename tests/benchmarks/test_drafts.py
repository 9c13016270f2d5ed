"""What the benchmark of drafts counts, on episodes that fit in the head."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.llm_agent.es_manager import EsManager
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.types import Episode, Turn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from drafts import Arm, compare, replayed


def episode(*replies: list[int], prompt: list[int], logprob: float = -1.0) -> Episode:
    turns = [
        Turn(user="", prompt_ids=prompt, response_ids=ids, logprobs=[logprob] * len(ids), text="", stop_reason="")
        for ids in replies
    ]
    return Episode(tag="A", env_type="", group_id=0, member=0, seed=0, turns=turns)


def test_episodes_are_compared_up_to_the_first_other_token():
    ours = episode([1, 2, 3], [4], prompt=[0])
    assert compare(ours, ours) == (True, [0.0] * 4)
    is_same, distances = compare(ours, episode([1, 2, 9], [4], prompt=[0], logprob=-1.5))
    assert not is_same
    assert distances == pytest.approx([0.5, 0.5])
    assert not compare(ours, episode([1, 2, 3], prompt=[0]))[0]
    assert not compare(ours, episode([1, 2, 3, 5], [4], prompt=[0]))[0]


def test_a_reply_that_was_there_before_takes_two_launches_instead_of_nine():
    said = list(range(20, 29))
    # Nothing to guess in the first turn. In the second, the prompt's end was followed by the same reply: 8, and 1.
    assert replayed([episode(said, said, prompt=[7])]) == (18, 9 + 2, 18 / 11)


def test_replies_without_tokens_and_turns_that_are_missing_count_for_nothing():
    assert replayed([episode([], prompt=[7]), episode([1, 2], [], prompt=[8])]) == (2, 2, 1.0)


def test_the_environments_of_a_rollout_are_closed_after_it(monkeypatch):
    closed = []
    close = EsManager.close
    monkeypatch.setattr(EsManager, "close", lambda self: closed.append(self) or close(self))
    sizes = ["es_manager.train.env_groups=1", "es_manager.train.group_size=2", "ppo_mini_batch_size=1"]
    sizes += ["es_manager.train.env_configs.n_groups=[1]", "actor_rollout_ref.rollout.response_length=8"]
    config = load_config("quickstart_bandit", ["model_path=tiny", *sizes])
    folder = resolve_model("tiny", env_types=["bandit"])
    arm = Arm(config, load_model(folder, device="cpu"), load_tokenizer(folder), drafts=False)
    for number in (1, 2):
        assert len(arm.play(seed=number)[1]) == 2
        assert len(closed) == number
