"""The plan of a start: what it checks, what it notes, and that it prints nothing."""

import pytest

from ragen.trainer.starting.start import plan_start
from tests.trainer.runs import small_config, train

ROLLOUT = "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([f"{ROLLOUT}.top_p=0.9"], "top_p=0.9: replies are drawn from a cut distribution"),
        ([f"{ROLLOUT}.top_k=20"], "top_k=20: replies"),
        ([f"{ROLLOUT}.top_p=0.9", f"{ROLLOUT}.top_k=20"], "top_p=0.9 and top_k=20: replies"),
    ],
)
def test_a_cut_distribution_is_noted(tmp_path, capsys, changes, named):
    (line,) = plan_start(small_config(tmp_path, *changes)).notes
    assert capsys.readouterr().out == ""
    assert line.startswith("warning: actor_rollout_ref.rollout.") and named in line and "biased" in line


def test_a_temperature_and_the_cuts_of_validation_are_no_reason_to_warn(tmp_path):
    changes = [f"{ROLLOUT}.temperature=0.7", f"{ROLLOUT}.val_kwargs.top_p=0.9", f"{ROLLOUT}.val_kwargs.top_k=5"]
    assert plan_start(small_config(tmp_path, *changes)).notes == ()


def test_a_run_says_it_once(tmp_path, capsys):
    train(tmp_path, "algorithm.adv_estimator=grpo", f"{ROLLOUT}.top_p=0.9", "trainer.total_training_steps=1")
    assert capsys.readouterr().out.count("the gradient is biased") == 1
