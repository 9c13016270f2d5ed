"""Whole supervised runs: training, resume, merging and validation."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ragen.cli import main as ragen
from ragen.errors import ConfigError
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.sft import command
from ragen.sft.data import levels_of
from ragen.sft.finetune import Finetuner
from ragen.tracking.episodes import read_episodes
from ragen.tracking.glossary import unknown
from ragen.tracking.rundir import SFT_RECORD, read_metrics, read_status
from ragen.trainer.held_out import levels_behind
from tests.sft.supervised import SMALL, configured, samples
from tests.threads import num_threads
from tests.trainer.family_folders import write_folder


@pytest.mark.parametrize(("rank", "lr"), [(0, "3e-4"), (4, "1e-3")])
def test_a_run_learns_merges_validates_and_is_not_repeated(tmp_path, rank, lr, capsys):
    changes = [f"sft.output_dir={tmp_path}/run", f"lora.rank={rank}", "sft.epochs=3", f"sft.optim.lr={lr}"]
    changes += ["sft.train_size=64", "sft.val_size=32"]
    config, sft = configured(*changes)
    merged = command.run_sft(config, sft)
    root = tmp_path / "run"
    records = read_metrics(root)
    assert [record["step"] for record in records] == list(range(len(records)))
    assert unknown({key for record in records for key in record} - {"step"}) == []
    losses = {record["step"]: record["sft/val_loss"] for record in records if "sft/val_loss" in record}
    assert len(losses) == 4
    assert min(losses.values()) < losses[0]
    folder = root / ("lora_weights" if rank else "weights")
    saved = {int(path.name.rpartition("_")[2]) for path in folder.glob("global_step_*")}
    epochs = sorted(set(losses) - {0})
    best = min(epochs, key=lambda step: losses[step])
    assert saved == (set(epochs) if rank else {best, epochs[-1]})

    weights, base = (
        load_file(merged / "model.safetensors"),
        load_file(Path(resolve_model("tiny/frozen_lake")) / "model.safetensors"),
    )
    assert weights.keys() == base.keys()
    assert any(not torch.equal(weights[name], base[name]) for name in base)
    if not rank:
        assert all(
            torch.equal(w, load_file(folder / f"global_step_{best}" / "actor" / "model.safetensors")[n])
            for n, w in weights.items()
        )
    played, base_played = levels_behind(merged), levels_behind(resolve_model("tiny/frozen_lake"))
    demonstrated = {int(level, 16) for level in levels_of(config, "FrozenLake", range(100_000, 100_064))}
    assert set(played.hashes) == demonstrated | set(base_played.hashes)
    tokenizer = load_tokenizer(merged)
    tuner = Finetuner(load_model(merged, device="cpu", is_trained=True), sft, total_steps=1)
    assert tuner.loss(samples(tokenizer, *changes)[1]) == pytest.approx(losses[best], rel=1e-4)

    assert read_status(root / "validation")["state"] == "finished"
    played = list(read_episodes(root / "validation" / "episodes" / "greedy.jsonl.gz"))
    assert [episode.seed for episode in played] == list(range(123, 129))
    assert "FrozenLake | greedy" in (merged / "validate.log").read_text()
    card = (merged / "README.md").read_text()
    assert f"{losses[best]:.4f} at step {best}, which is this model, after {losses[0]:.4f} before" in card
    assert "| FrozenLake | greedy | " in card and "seeds from 100000 on" in card and str(tmp_path) not in card
    assert (root / "train.log").read_text().count("sft/val_loss") == 4

    before = (merged / "model.safetensors").stat().st_mtime_ns
    assert command.run_sft(config, sft) == merged
    assert (merged / "model.safetensors").stat().st_mtime_ns == before
    assert "has been validated" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"holds a run with sft\.optim\.lr=.*, this one asks for 0\.1"):
        command.run_sft(*configured(*changes, "sft.optim.lr=0.1"))
    with pytest.raises(ConfigError, match=r"Set actor_rollout_ref\.rollout\.max_model_len as it was"):
        command.run_sft(*configured(*changes, "actor_rollout_ref.rollout.max_model_len=999"))


def test_a_run_of_a_version_with_fewer_keys_of_the_agent_is_known_again(tmp_path):
    config, sft = configured(f"sft.output_dir={tmp_path}", "agent_proxy.example_answer=False")
    command.check_same_run(tmp_path, config, sft)
    record = json.loads((tmp_path / SFT_RECORD).read_text())
    newer = ("agent_proxy.example_answer", "agent_proxy.answer_parsing")
    older = {key: value for key, value in record.items() if key not in newer}
    (tmp_path / SFT_RECORD).write_text(json.dumps(older))
    command.check_same_run(tmp_path, config, sft)
    config, sft = configured(f"sft.output_dir={tmp_path}", "agent_proxy.example_answer=True")
    with pytest.raises(ConfigError, match=r"example_answer=False, this one asks for True\. Set agent_proxy"):
        command.check_same_run(tmp_path, config, sft)


@pytest.mark.parametrize(("rank", "threads"), [(0, 1), (4, 1), (0, 2)])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, rank, threads, monkeypatch):
    with num_threads(threads):
        check_killed_run(tmp_path, rank, monkeypatch)


def check_killed_run(tmp_path, rank, monkeypatch) -> None:
    changes = (f"lora.rank={rank}", "sft.epochs=3", "sft.validate_merged=False")
    straight = command.run_sft(*configured(f"sft.output_dir={tmp_path}/straight", *changes))
    config, sft = configured(f"sft.output_dir={tmp_path}/killed", *changes)
    update = Finetuner.update

    def fail_later(self, batch, *, step):
        if step > self.total_steps // 2:
            raise InterruptedError("the power is gone")
        return update(self, batch, step=step)

    monkeypatch.setattr(Finetuner, "update", fail_later)
    with pytest.raises(InterruptedError):
        command.run_sft(config, sft)
    assert read_status(tmp_path / "killed")["state"] == "failed"
    assert not (tmp_path / "killed" / "merged_model").exists()
    monkeypatch.setattr(Finetuner, "update", update)
    resumed = command.run_sft(config, sft)
    for name, weight in load_file(straight / "model.safetensors").items():
        assert torch.equal(weight, load_file(resumed / "model.safetensors")[name]), name
    ours, theirs = (
        [{k: v for k, v in record.items() if k != "sft/tokens_per_second"} for record in read_metrics(tmp_path / name)]
        for name in ("straight", "killed")
    )
    assert ours == theirs
    # A kill before the merge costs the merge alone.
    shutil.rmtree(resumed)
    monkeypatch.setattr(Finetuner, "update", fail_later)
    assert command.run_sft(config, sft).exists()


def test_the_command_reads_both_sections_and_reports_errors(tmp_path, capsys):
    words = [*SMALL, f"sft.output_dir={tmp_path}/run", "sft.epochs=1", "sft.validate_merged=False"]
    assert ragen(["sft", *words]) == 0
    assert "Merged model" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "sft.json").read_text())["sft.epochs"] == 1
    assert ragen(["sft", *words, "sft.epochs=2"]) == 1
    assert "choose another sft.output_dir" in capsys.readouterr().err


def test_a_family_without_a_system_role_is_taught_on_its_own_template(tmp_path, capsys):
    folder = write_folder("mistral", tmp_path / "mistral")
    changes = [f"model_path={folder}", f"sft.output_dir={tmp_path}/run", "sft.epochs=1", "sft.validate_merged=False"]
    merged = command.run_sft(*configured(*changes, "actor_rollout_ref.rollout.max_model_len=2048"))
    assert "in the last user message only" in capsys.readouterr().out
    assert type(load_model(merged)) is type(load_model(folder))
