"""What is said before a run starts."""

import pytest

from ragen.config import load_config
from ragen.trainer.notices import notices
from tests.trainer.runs import train

ROLLOUT = "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([f"{ROLLOUT}.top_p=0.9"], "top_p=0.9: replies are drawn from a cut distribution"),
        ([f"{ROLLOUT}.top_k=20"], "top_k=20: replies"),
        ([f"{ROLLOUT}.top_p=0.9", f"{ROLLOUT}.top_k=20"], "top_p=0.9 and top_k=20: replies"),
    ],
)
def test_a_cut_distribution_is_warned_about(changes, named):
    (line,) = notices(load_config("base", changes))
    assert line.startswith("warning: actor_rollout_ref.rollout.") and named in line and "biased" in line


def test_a_temperature_and_the_cuts_of_validation_are_no_reason_to_warn():
    changes = [f"{ROLLOUT}.temperature=0.7", f"{ROLLOUT}.val_kwargs.top_p=0.9", f"{ROLLOUT}.val_kwargs.top_k=5"]
    assert notices(load_config("base", changes)) == []


def test_a_run_says_it_once(tmp_path, capsys):
    train(tmp_path, "algorithm.adv_estimator=grpo", f"{ROLLOUT}.top_p=0.9", "trainer.total_training_steps=1")
    assert capsys.readouterr().out.count("the gradient is biased") == 1
