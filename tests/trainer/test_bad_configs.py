"""Mistakes are reported by name, in under two seconds of processor time, before torch is loaded."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ragen.cli import main
from ragen.errors import RagenError
from ragen.models.resolve import resolve_model
from ragen.trainer.starting.start import plan_start
from tests.trainer.runs import REPOSITORY, overrides, small_config

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

BAD = {
    # typing mistakes
    "trainer.test_frequ=5": "trainer.test_freq",
    "trainer.test_freq=often": "trainer.test_freq",
    "algorithm.adv_estimator=grp": "adv_estimator",
    f"{ACTOR}.kl_loss_type=k9": "kl_loss_type",
    "trainer.logger=[wandbb]": "wandb",
    "trainer": "is not an override",
    "model_path=tniy": "'tniy' is neither a local directory",
    "model_path=tiny/chess": "There is no embedded model 'tiny/chess'",
    "model_path=/nowhere/at/all": "/nowhere/at/all does not exist",
    "model_path=some/model": "HF_HUB_OFFLINE",
    "critic.model.path=tiny/chess": "There is no embedded model 'tiny/chess'",
    # numbers out of range
    "trainer.total_training_steps=0": "trainer.total_training_steps is 0. Set it to a number at least 1",
    f"{ACTOR}.optim.lr=-1": "optim.lr is -1.0. Set it to a number from 0 to 1",
    f"{ACTOR}.clip_ratio_c=1": "clip_ratio_c is 1.0",
    f"{ROLLOUT}.temperature=0": "temperature is 0.0",
    f"{ROLLOUT}.rollout_filter_value=1.5": "rollout_filter_value is 1.5. With top_p",
    f"{ROLLOUT}.importance_cap=0": "importance_cap is 0.0",
    "es_manager.train.env_groups=0": "es_manager.train.env_groups",
    "trainer.max_actor_ckpt_to_keep=0": "max_actor_ckpt_to_keep is 0",
    # values that contradict each other
    "es_manager.train.env_configs.n_groups=[2]": "n_groups sums to 2, env_groups is 3",
    "es_manager.train.env_configs.tags=[Sokobann]": "Sokobann",
    "ppo_mini_batch_size=13": "ppo_mini_batch_size is 13",
    f"{ROLLOUT}.response_length=1024": "no room for a prompt",
    "es_manager.train.group_size=1 ppo_mini_batch_size=2 "
    f"{ROLLOUT}.rollout_filter_include_zero=False": "one episode has no variance",
    "algorithm.adv_estimator=grpo algorithm.bi_level_gae=True": "Set algorithm.adv_estimator=gae",
    "algorithm.bi_level_gae=True agent_proxy.use_turn_scores=True": "Set use_turn_scores=False",
    "agent_proxy.use_turn_scores=True agent_proxy.context_window_mode=single_turn": "use_turn_scores is True",
    "critic.enable=False": "adv_estimator=gae needs values",
    "algorithm.soft_advantage_reweight=True": "has no effect with adv_estimator=gae",
    "algorithm.use_kl_in_reward=True algorithm.kl_penalty=full": "kl_penalty=full needs whole distributions",
    f"{ROLLOUT}.importance_cap=2 {ROLLOUT}.old_log_probs=engine": "old_log_probs=recompute",
    "seed.val=10003": "the validation levels 10003 to 10006 overlap the levels 10000 to 10005 of seed.train=10000",
    "enable_response_mask=False": "enable_response_mask is False",
    "trainer.resume_mode=resume_path": "needs the path of a global_step_<N> folder",
    "trainer.resume_from_path=a/global_step_2": "Set resume_mode=resume_path",
    "trainer.resume_mode=resume_path trainer.resume_from_path=a/global_step_2": "has no actor folder",
    f"{ACTOR}.checkpoint.save_contents=[optimizer]": "no checkpoint without weights",
    f"{ACTOR}.checkpoint.load_contents=[model]": "leave load_contents out",
    # what this version cannot do
    "trainer.nnodes=2": "ray_kwargs.ray_init.address=auto",
    f"{ROLLOUT}.name=vllm": "rollout.name=vllm",
    f"{ROLLOUT}.do_sample=False": "greedy replies do not vary",
    "trainer.gradient_analysis_only=True": "gradient_analysis_only is True, but no analysis is planned",
}


@pytest.mark.parametrize("changes", BAD)
def test_a_bad_configuration_says_what_is_wrong(tmp_path, changes):
    started = time.process_time()
    with pytest.raises(RagenError) as error:
        plan_start(small_config(tmp_path / "run", *changes.split(" ")))
    assert BAD[changes] in str(error.value)
    assert not (tmp_path / "run").exists()
    assert time.process_time() - started < 2


WATCHED = """
import runpy, sys
try:
    runpy.run_path("train.py", run_name="__main__")
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.parametrize("changes", ["trainer.test_frequ=5", "trainer.nnodes=2", "model_path=tiny/chess"])
def test_train_py_reports_a_mistake_in_one_line_within_two_seconds(tmp_path, changes):
    before = child_seconds()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *overrides(tmp_path / "run", changes)],
        cwd=REPOSITORY,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert done.stdout == "False\n"  # torch was not loaded
    assert child_seconds() - before < 2


def child_seconds() -> float:
    """Processor time of finished children: a busy machine does not lengthen it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_help_is_kind(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    assert "usage: ragen train" in capsys.readouterr().out


STATES = {
    "": "is not JSON",
    "[]": "expected a JSON object",
    "{}": "has no key origin",
    '{"origin": 5}': "origin is 5, which no run writes",
}


@pytest.mark.parametrize("text", STATES)
def test_a_broken_state_is_named(tmp_path, text):
    folder = tmp_path / "run/global_step_1"
    (folder / "actor").mkdir(parents=True)
    (folder / "trainer_state.json").write_text(text)
    (tmp_path / "run/latest_checkpointed_iteration.txt").write_text("1\n")
    with pytest.raises(RagenError, match=STATES[text]) as error:
        plan_start(small_config(tmp_path / "run"))
    assert "trainer_state.json" in str(error.value)


def test_an_output_folder_that_cannot_be_is_refused_before_torch(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RagenError, match=r"trainer\.default_local_dir=.*file is a file"):
        plan_start(small_config(tmp_path / "file/run"))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("+custom_envs.CoordSokoban.env_config.nope=1", "nope: unknown key"),
        ("custom_envs.Bandit.env_type=x", "'x'"),
    ],
)
def test_options_of_environments_are_checked_at_start(tmp_path, option, words):
    with pytest.raises(RagenError, match=words):
        plan_start(small_config(tmp_path / "run", option))


def test_a_context_beyond_the_positions_is_refused_at_start(tmp_path):
    with pytest.raises(RagenError, match=r"max_model_len is 5000.*4096 positions"):
        plan_start(small_config(tmp_path / "run", f"{ROLLOUT}.max_model_len=5000"))


def test_a_disk_without_room_for_a_checkpoint_is_refused(tmp_path, monkeypatch):
    free = 60 * 10**6
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    config = small_config(tmp_path / "run")
    assert not plan_start(config).is_over
    shutil.copytree(resolve_model("tiny/bandit"), tmp_path / "large")
    # Actor and critic: 30 million weights in bfloat16, which are saved in float32 with two moments each.
    pad_weights(tmp_path / "large/model.safetensors", num_bytes=free)
    large = f"model_path={tmp_path / 'large'}"
    with pytest.raises(RagenError, match=r"60 MB are free there, and one checkpoint .* needs about 72\d MB"):
        plan_start(small_config(tmp_path / "run", large))
    # Adapters are saved in weights of full size.
    with pytest.raises(RagenError, match=r"60 MB are free there, and one checkpoint .* needs about 12\d MB"):
        plan_start(small_config(tmp_path / "run", large, "lora.rank=4"))
    assert plan_start(small_config(tmp_path / "run", large, "trainer.save_freq=-1")).step == 0


def pad_weights(path: Path, *, num_bytes: int) -> None:
    """Add an unused tensor in bfloat16; the file is sparse."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header["padding"] = {"dtype": "BF16", "shape": [num_bytes // 2], "data_offsets": [len(data), len(data) + num_bytes]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
        file.truncate(8 + len(text) + len(data) + num_bytes)
