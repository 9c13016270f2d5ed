"""One evaluation, for every test that reads it."""

import pytest

from ragen.cli import main

SMALL = [
    "model_path=tiny",
    "es_manager.val.env_groups=6",
    "es_manager.val.env_configs.n_groups=[6]",
    "actor_rollout_ref.rollout.response_length=48",
    "actor_rollout_ref.rollout.max_model_len=1024",
]


@pytest.fixture(scope="session")
def sokoban_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("eval") / "run"
    assert main(["eval", "--config-name", "_2_sokoban", "--out", str(out), *SMALL]) == 0
    return out
