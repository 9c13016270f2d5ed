"""The hyper-parameter search: what it plans, runs, stores and resumes."""

import itertools
import json
import shutil
import signal
import subprocess
import time
from functools import reduce
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file

from ragen.cli import main as ragen
from ragen.config.seeds import SEED_GAP
from ragen.errors import ConfigError
from ragen.legacy import best, search
from ragen.legacy.__main__ import main as legacy
from ragen.models.resolve import resolve_model
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.run import Run
from ragen.tracking.rundir import RunDir, read_metrics, read_status, write_atomic
from tests.legacy.test_base_experiments import published

ROOT = Path(__file__).parents[2]
COMMANDS = published("scripts/hyperparam_search.sh")
SMALL = [
    "--base_model=tiny",
    "training.total_training_steps=1",
    "training.val_data_num=3",
    "training.max_response_length=48",
    "logging.mode=console",
]
FEW = ["--train_batch_size", "2", "--n_rollout", "2"]
BEST = "log/searched_hyper_params/searched_params_group_{0}.json"


def planned(*words: str):
    return search.plan(search.parser().parse_intermixed_args(["--env_name=two_armed_bandit", *words]))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_a_legacy_command(here):
    run, _ = planned("--search_group", "1", "--exp_base_name=try", "--micro_batch_size", "4")[1]
    config = run.config
    assert config is not None
    assert run.name == "try_train_batch_size_4_n_rollout_8"
    assert run.command[1:4] == ("-m", "ragen.legacy", "two_armed_bandit")
    assert run.log == Path("log/terminal/hyper_param_search_logs/exp_try_train_batch_size_4_n_rollout_8.log")
    assert run.run_dir == Path("checkpoints/RAGEN/try_train_batch_size_4_n_rollout_8")
    assert config.model_path == "Qwen/Qwen2.5-3B-Instruct"
    assert config.algorithm.adv_estimator == "grpo"
    assert config.actor_rollout_ref.actor.kl_loss_coef == 0.04
    assert (config.es_manager.train.env_groups, config.es_manager.train.group_size) == (4, 8)
    assert config.ppo_mini_batch_size == 32
    assert run.total_steps == config.trainer.total_training_steps == 125
    assert config.es_manager.val.env_groups == 50


def test_every_setting_is_repeated_with_other_seeds_on_the_same_validation_levels(here):
    runs = [run for run, _ in planned("--search_group", "2", "--seeds", "3", "seed.train=7")]
    assert [run.name for run in runs[3:6]] == [
        "hyperparam_searching_actor_lr_1e-5",
        "hyperparam_searching_actor_lr_5e-7-seed2",
        "hyperparam_searching_actor_lr_1e-6-seed2",
    ]
    configs = [run.config for run in runs if run.config]
    assert [config.seed.train for config in configs[::4]] == [7, 7 + SEED_GAP, 7 + 2 * SEED_GAP]
    assert len({config.seed.val for config in configs}) == 1 and len({run.run_dir for run in runs}) == 12
    assert {run.value for run in runs} == {f"actor_lr={rate}" for rate in ("5e-7", "1e-6", "5e-6", "1e-5")}


def searched(folder: Path, rate: str, seed: int, success: float, *, state: str = "finished") -> best.Candidate:
    """A run of a search that has ended; its score is twice its success."""
    name = f"actor_lr_{rate}-seed{seed}"
    run = RunDir(folder / name)
    run.write_config("es_manager: {val: {group_size: 1, env_configs: {tags: [A], n_groups: [100]}}}")
    run.log(1, {"val-env/A/success": success, "val-env/A/score": 2 * success})
    run.write_status(state)
    planned_run = Run(
        name=name,
        command=(),
        log=folder / f"{name}.log",
        run_dir=run.path,
        total_steps=1,
        value=f"actor_lr={rate}",
        seed=seed,
        fields={"actor_lr": rate},
    )
    return best.Candidate(planned_run, {"actor_lr": rate})


def test_the_best_of_several_seeds_is_the_best_mean_and_what_cannot_be_told_from_it_is_named(here, capsys):
    rates = {"1e-6": (0.30, 0.33, 0.31), "5e-6": (0.60, 0.55, 0.62), "1e-5": (0.58, 0.64, 0.50)}
    found = [searched(here, rate, seed, each) for rate, row in rates.items() for seed, each in enumerate(row, start=1)]
    outcomes = {run.name: Outcome(status="success") for run, _ in found}
    assert best.store_best(2, found, outcomes, facts={"env_name": "bandit", "base_model": "tiny"}) == 0
    said = capsys.readouterr().out
    assert "| actor_lr=5e-6 | 1, 2, 3 | 0.590 [" in said and "cannot tell: about" in said and "| lower |" in said
    assert "its lead flatters it" in said
    stored = json.loads((here / BEST.format(2)).read_text())
    assert (stored["actor_lr"], stored["score"]) == (5e-6, pytest.approx(1.18))
    assert stored["scores"] == [1.2, 1.1, 1.24] and stored["not_found_lower"] == ["actor_lr=1e-5"]


def test_a_setting_with_a_collapsed_seed_has_no_interval(here, capsys):
    found = [searched(here, "1e-6", seed, 0.3) for seed in (1, 2)]
    found += [searched(here, "5e-6", 1, 0.6), searched(here, "5e-6", 2, 0.1, state="early_stopped")]
    outcomes = {run.name: Outcome(status="success") for run, _ in found}
    outcomes[found[-1].run.name] = Outcome(status="early_stopped")
    assert best.store_best(2, found, outcomes, facts={"env_name": "bandit", "base_model": "tiny"}) == 0
    said = capsys.readouterr().out
    assert "0.7000 (a run collapsed)" in said and "no verdict on the mean: runs collapsed" in said


def test_seeds_within_a_run_are_refused(here, capsys):
    words = ["--env_name=two_armed_bandit", "--search_group", "2", "--base_model=tiny", "--dry_run"]
    assert search.main([*words, "trainer.seeds=3"]) == 1
    assert "trainer.seeds=3 would repeat every run within itself. Use --seeds" in capsys.readouterr().err


def test_a_search_with_two_seeds_runs_to_its_table(here, monkeypatch, capsys):
    monkeypatch.setitem(search.GROUPS, 2, {"actor_lr": ("1e-6",)})
    words = ["--env_name=two_armed_bandit", "--search_group", "2", "--seeds", "2", *SMALL, *FEW]
    assert search.main(words) == 0
    assert "| actor_lr=1e-6 | 1, 2 |" in capsys.readouterr().out
    assert len(json.loads((here / BEST.format(2)).read_text())["scores"]) == 2


@pytest.mark.slow
def test_a_published_command_repeats_itself_with_seeds(here, capsys):
    words = ["model.experiment_name=twice", "model.base_model=tiny", *SMALL[1:], "training.train_batch_size=2"]
    more = ["training.n_rollout=2", "training.ppo_batch_size=4", "training.micro_batch_size=4", "trainer.seeds=2"]
    assert legacy(["two_armed_bandit", *words, *more]) == 0
    assert sorted(path.name for path in Path("checkpoints/RAGEN").iterdir()) == ["twice", "twice-seed2"]
    assert "| mean | 10000, 2010000 |" in capsys.readouterr().out


def test_earlier_groups_give_their_best_unless_a_value_is_given(here, capsys):
    write_atomic(
        Path(BEST.format(1)),
        json.dumps({"env_name": "sokoban", "base_model": search.DEFAULT_MODEL, "train_batch_size": 16, "n_rollout": 4}),
    )
    _, params = planned("--search_group", "3")[0]
    assert (params["train_batch_size"], params["n_rollout"], params["actor_lr"]) == ("16", "4", "1e-6")
    out = capsys.readouterr().out
    assert "found with env_name=sokoban, not two_armed_bandit" in out
    assert "group 2 has not been searched here" in out
    _, params = planned("--search_group", "3", "--n_rollout", "8", "--temperature", "0.5")[0]
    assert (params["train_batch_size"], params["n_rollout"], params["temperature"]) == ("16", "8", "0.5")


def test_mistakes_are_told_before_anything_runs(here, capsys):
    with pytest.raises(ConfigError, match="--actor_lr is what group 2 searches"):
        planned("--search_group", "2", "--actor_lr", "1e-3")
    with pytest.raises(ConfigError, match="kl_coef is an option of the search: use --kl_coef"):
        planned("--search_group", "2", "optimization.kl_coef=0.5")
    words = ["--env_name=two_armed_bandit", "--search_group", "2"]
    assert search.main([*words, "--n_gpus", "4", "--micro_batch_size", "2"]) == 1
    assert "Every GPU needs an episode" in capsys.readouterr().err
    assert search.main(["--env_name=chess", "--search_group", "2"]) == 1
    assert search.main([*words, "--base_model=no-such-model"]) == 1
    with pytest.raises(SystemExit):
        search.main([*words[:1], "--search_group", "5"])
    assert not (here / "log").exists()


def test_a_dry_run_prints_the_commands_and_stores_nothing(here, capsys):
    assert len(COMMANDS) == 4
    for words, num_runs in zip(COMMANDS, (9, 4, 6, 9), strict=True):
        assert search.main([*words, "--dry_run"]) == 0
        assert capsys.readouterr().out.count("-m ragen.legacy two_armed_bandit ") == num_runs
    assert list(here.iterdir()) == []


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    command = ["bash", str(ROOT / "scripts" / "hyperparam_search.sh"), *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.timeout(600)
def test_a_killed_search_resumes_stores_its_best_and_the_next_group_uses_it(tmp_path):
    words = [*COMMANDS[1], *SMALL, *FEW]
    names = [f"hyperparam_searching_actor_lr_{rate}" for rate in ("5e-7", "1e-6", "5e-6", "1e-5")]
    runs = [tmp_path / "checkpoints" / "RAGEN" / name for name in names]
    first = start(words, tmp_path)
    deadline = time.monotonic() + 240
    while not ((runs[0] / "status.json").exists() and read_status(runs[0])["state"] == "finished"):
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    ended = read_status(runs[0])["updated_at"]
    assert not (tmp_path / BEST.format(2)).exists()

    second = start(words, tmp_path)
    output, _ = second.communicate(timeout=280)
    assert second.returncode == 0, output
    assert f"{names[0]}: done before" in output
    assert read_status(runs[0])["updated_at"] == ended
    scores = {name: read_metrics(run)[-1]["val-env/TwoArmedBandit/score"] for name, run in zip(names, runs)}
    best = json.loads((tmp_path / BEST.format(2)).read_text())
    assert best["score"] == max(scores.values()) == scores[best["experiment_name"]]
    assert best["experiment_name"] == f"hyperparam_searching_actor_lr_{best['actor_lr']:g}".replace("e-0", "e-")
    assert {"train_batch_size", "n_rollout", "kl_coef", "max_turns", "temperature", "ppo_batch_size"} <= best.keys()
    assert sorted(file.name for file in (tmp_path / "log/terminal/hyper_param_search_logs").glob("*.log")) == sorted(
        f"exp_{name}.log" for name in names
    )
    summaries = sorted((tmp_path / "log/terminal").glob("hyperparam_search_hyperparam_searching_*.log"))
    assert summaries[-1].read_text().count("status=success") == 8  # as they ended, and in the order of the values

    command = ["bash", str(ROOT / "scripts" / "hyperparam_search.sh"), *COMMANDS[2], "--dry_run", "--base_model=tiny"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert shown.count(f"optimization.actor_lr={best['actor_lr']:g}") == 6


def test_a_failing_run_is_counted_and_nothing_is_stored(here, monkeypatch, capsys):
    broken = here / "broken"
    shutil.copytree(resolve_model("tiny/bandit"), broken)
    weights = load_file(broken / "model.safetensors")
    weights[min(weights)].fill_(float("nan"))  # which only the run itself sees
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setitem(search.GROUPS, 2, {"actor_lr": ("1e-6",)})
    words = ["--env_name=two_armed_bandit", "--search_group", "2", *SMALL, *FEW]
    assert search.main([*words, f"--base_model={broken}"]) == 1
    captured = capsys.readouterr()
    assert "1 of 1 runs have no score" in captured.err
    assert "status=fail" in next((here / "log" / "terminal").glob("*.log")).read_text()
    assert not (here / BEST.format(2)).exists()


KEYS = {
    "train_batch_size": "es_manager.train.env_groups",
    "n_rollout": "es_manager.train.group_size",
    "actor_lr": "actor_rollout_ref.actor.optim.lr",
    "kl_coef": "actor_rollout_ref.actor.kl_loss_coef",
    "max_turns": "agent_proxy.max_turn",
    "temperature": "actor_rollout_ref.rollout.temperature",
}


def values_of(run: Path) -> dict[str, float]:
    """The searched values as they stand in the configuration that a run was started with."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    return {name: reduce(dict.__getitem__, key.split("."), config) for name, key in KEYS.items()}


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_all_groups_run_to_their_end_each_with_the_best_of_those_before(tmp_path):
    settled: dict[str, float] = {}
    done: set[Path] = set()
    for group, words in enumerate(COMMANDS, start=1):
        process = start([*words, *SMALL], tmp_path)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        assert "has not been searched" not in output
        runs = set((tmp_path / "checkpoints" / "RAGEN").iterdir()) - done
        done |= runs
        grid = search.GROUPS[group]
        played = {run.name: values_of(run) for run in runs}
        assert {tuple(values[name] for name in grid) for values in played.values()} == {
            tuple(map(float, values)) for values in itertools.product(*grid.values())
        }
        assert all(values[name] == best for values in played.values() for name, best in settled.items())
        stored = json.loads((tmp_path / BEST.format(group)).read_text())
        scores = {run.name: read_metrics(run)[-1]["val-env/TwoArmedBandit/score"] for run in runs}
        assert stored["score"] == max(scores.values()) == scores[stored["experiment_name"]]
        assert {name: stored[name] for name in KEYS} == played[stored["experiment_name"]]
        settled |= {name: stored[name] for name in grid}
    assert len(done) == 28


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_gives_every_run_its_workers(here, capfd):
    pytest.importorskip("ray")
    words = [
        "--env_name=two_armed_bandit",
        "--search_group",
        "2",
        "--n_gpus",
        "2",
        "--micro_batch_size",
        "2",
        "--parallel",
    ]
    assert search.main([*words, *FEW, *SMALL]) == 0
    assert "2xCPU" in capfd.readouterr().out
    logs = sorted(Path("log/terminal/hyper_param_search_logs").glob("*.log"))
    assert len(logs) == 4
    assert all("Workers: 2 on cpu, " in log.read_text() for log in logs)
    assert json.loads(Path(BEST.format(2)).read_text())["actor_lr"] in (5e-7, 1e-6, 5e-6, 1e-5)


def test_ragen_search_is_the_script(here, capsys):
    assert ragen(["search", "--env_name", "sokoban", "--search_group", "1", "--base_model", "tiny", "--dry_run"]) == 0
    assert "train_batch_size_16_n_rollout_16" in capsys.readouterr().out
