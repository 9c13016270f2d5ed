"""Supervised training: data, loss, schedule, resume, merging and validation."""

import dataclasses
import json
import shutil

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from ragen.cli import main as ragen
from ragen.errors import ConfigError
from ragen.llm_agent.build import build_chat
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.sft import command, data
from ragen.sft.config import SftConfig, load_sft
from ragen.sft.data import Demonstrator, chunks, load_data
from ragen.sft.finetune import Finetuner, epoch_batches
from ragen.tracking.episodes import read_episodes
from ragen.tracking.glossary import unknown
from ragen.tracking.rundir import read_metrics, read_status
from ragen.types import Sample
from tests.threads import num_threads

SMALL = (
    "model_path=tiny",
    "es_manager.train.env_configs.tags=[FrozenLake]",
    "es_manager.val.env_groups=6",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.rollout.response_length=64",
    "agent_proxy.max_turn=3",
    "trainer.logger=[]",
    "lora.alpha=4",
    "sft.train_size=24",
    "sft.val_size=8",
    "sft.epochs=2",
    "sft.batch_size=16",
    "sft.optim.lr=3e-4",
)


def configured(*changes: str):
    return load_sft("base", [*SMALL, *changes])


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(resolve_model("tiny/frozen_lake"))


def samples(tokenizer, *changes: str) -> tuple[list[Sample], list[Sample]]:
    config, sft = configured(*changes)
    return load_data(config, sft, model=resolve_model("tiny/frozen_lake"), tokenizer=tokenizer)


def test_a_chunk_holds_the_solver_on_its_own_levels(tokenizer):
    config, _ = configured()
    episodes = Demonstrator(config, tokenizer, noise=0.0, max_plan=100)(chunks(["FrozenLake"], 100, 40)[1])
    assert [episode.seed for episode in episodes] == list(range(132, 140))
    chat = build_chat(config, tokenizer)
    for episode in episodes:
        first = episode.turns[0]
        assert first.prompt_ids == chat.start(episode.system, first.user)
        assert chat.reply_text(first.response_ids) == first.text
        assert all(turn.is_parsed and turn.executed for turn in episode.turns)


def test_levels_with_long_solutions_are_left_out(tokenizer):
    config, _ = configured()
    short = Demonstrator(config, tokenizer, noise=0.0, max_plan=2)(chunks(["FrozenLake"], 100, 32)[0])
    assert 0 < len(short) < 32
    is_slippery = config.custom_envs["FrozenLake"].env_config["success_rate"] < 1
    assert is_slippery or max(episode.num_actions for episode in short) <= 2
    with pytest.raises(ConfigError, match=r"Raise sft\.max_plan"):
        samples(tokenizer, "sft.max_plan=1", "sft.train_size=1", "sft.val_size=1", "sft.seed=100003")


def test_parquet_holds_the_same_samples_as_memory_and_is_made_once(tokenizer, tmp_path, monkeypatch):
    folder = f"sft.data_dir={tmp_path}"
    in_memory, in_files = (
        [[(sample.input_ids, sample.loss_mask, sample.turn_spans) for sample in split] for split in found]
        for found in (samples(tokenizer), samples(tokenizer, folder))
    )
    assert in_files == in_memory
    table = pyarrow.parquet.read_table(tmp_path / "train.parquet")
    assert table.column_names[:6] == ["data_source", "prompt", "response", "ability", "reward_model", "extra_info"]
    rows = table.to_pylist()
    assert rows[0]["extra_info"] == {"split": "train", "index": 100_000, "turn": 0}
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert rows[0]["response"].startswith("<think>")
    assert rows[0]["response"].endswith(
        f"<answer>{rows[0]['reward_model']['ground_truth']}</answer>".replace(",", " ||")
    )
    second_turns = [row for row in rows if row["extra_info"]["turn"] == 1]
    assert len(second_turns[0]["prompt"]) == 4
    test = pyarrow.parquet.read_table(tmp_path / "test.parquet", columns=["extra_info"]).to_pylist()
    assert {row["extra_info"]["index"] for row in test} <= set(range(100_024, 100_032))

    def not_again(*args, **kwargs):
        raise AssertionError("the demonstrations were there")

    monkeypatch.setattr(data, "demonstrate", not_again)
    samples(tokenizer, folder)
    with pytest.raises(AssertionError, match="were there"):
        samples(tokenizer, folder, "agent_proxy.enable_think=False")


@pytest.mark.slow
def test_several_processes_make_the_same_demonstrations(tokenizer, monkeypatch):
    monkeypatch.setattr(data, "LEVELS_PER_PROCESS", 16)
    alone, together = (
        samples(
            tokenizer, f"sft.num_processes={n}", "sft.train_size=64", "es_manager.train.env_configs.tags=[FrozenLake]"
        )
        for n in (1, 2)
    )
    assert alone == together


def test_without_pyarrow_files_are_refused_with_the_way_out(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(Exception, match=r"pip install -e '\.\[sft\]'.*sft\.data_dir=null"):
        samples(tokenizer, f"sft.data_dir={tmp_path}")
    assert samples(tokenizer)[0]


def test_two_tags_are_demonstrated_side_by_side(tokenizer):
    train, val = samples(
        tokenizer,
        "es_manager.train.env_configs.tags=[FrozenLake,CoordFrozenLake]",
        "es_manager.train.env_groups=2",
        "es_manager.train.env_configs.n_groups=[1,1]",
        "ppo_mini_batch_size=1",
        "es_manager.val.env_configs.n_groups=[3,3]",
    )
    assert (len(train), len(val)) == (48, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sft.seed=10100", "sft.seed=10100: the demonstrated levels 10100 to 10131 overlap the levels 10000 to 11599"),
        ("sft.seed=120", "of seed.val"),
        ("sft.epochs=0", "epochs is 0"),
        ("sft.noise=2", "noise is 2.0"),
        ("sft.epoch=2", "sft.epoch: unknown key. Did you mean sft.epochs?"),
        ("sft.epochs=two", "sft.epochs: expected an integer"),
        ("sft.max_length=64", "no room for a prompt"),
        ("seed.train=null", "seed.train is null"),
    ],
)
def test_wrong_keys_are_refused(change, message):
    with pytest.raises(ConfigError) as error:
        configured(change)
    assert message in str(error.value)


def sample_of(num_replies: int) -> Sample:
    return Sample(
        group_id=0,
        member=0,
        input_ids=[1],
        loss_mask=[0],
        logprobs=[0.0],
        turn_spans=[(0, 1)] * num_replies,
        turn_scores=[0.0] * num_replies,
    )


def test_batches_hold_whole_episodes_and_enough_replies():
    pool = [sample_of(n) for n in (1, 2, 3, 2, 1, 3)]
    batches = epoch_batches(pool, batch_size=4, seed=0, epoch=0)
    assert sorted(id(s) for batch in batches for s in batch) == sorted(map(id, pool))
    sizes = [sum(len(s.turn_spans) for s in batch) for batch in batches]
    assert all(size >= 4 for size in sizes[:-1])
    assert all(sum(len(s.turn_spans) for s in batch[:-1]) < 4 for batch in batches)
    assert [len(b) for b in epoch_batches(pool, batch_size=4, seed=0, epoch=1)] != []


def test_the_packed_loss_is_that_of_the_replies_alone(tokenizer):
    _, sft = configured()
    _, val = samples(tokenizer)
    model = load_model(resolve_model("tiny/frozen_lake"), device="cpu", is_trained=True)
    total, count = 0.0, 0
    with torch.no_grad():
        for sample in val:
            ids = torch.tensor(sample.input_ids)
            logits = model(ids[None]).logits[0, :-1]
            is_reply = torch.tensor(sample.loss_mask[1:]).bool()
            total += cross_entropy(logits[is_reply], ids[1:][is_reply], reduction="sum").item()
            count += int(is_reply.sum())
    losses = []
    for micro_batch_size in (1, 4, 100):
        tuner = Finetuner(model, dataclasses.replace(sft, micro_batch_size=micro_batch_size), total_steps=1)
        losses.append(tuner.loss(val))
    assert losses == pytest.approx([total / count] * 3, rel=1e-5)


def test_the_learning_rate_warms_up_and_falls():
    _, sft = configured()
    model = load_model(resolve_model("tiny/frozen_lake"), device="cpu", is_trained=True)
    tuner = Finetuner(model, sft, total_steps=40)
    rates = [tuner.optimizer.learning_rate(step) for step in range(1, tuner.total_steps + 1)]
    peak = rates.index(max(rates))
    assert peak == pytest.approx(0.1 * len(rates), abs=1.5)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.05 * max(rates)


@pytest.mark.parametrize(("rank", "lr"), [(0, "3e-4"), (4, "1e-2")])
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
        load_file(resolve_model("tiny/frozen_lake") / "model.safetensors"),
    )
    assert weights.keys() == base.keys()
    assert any(not torch.equal(weights[name], base[name]) for name in base)
    if not rank:
        assert all(
            torch.equal(w, load_file(folder / f"global_step_{best}" / "actor" / "model.safetensors")[n])
            for n, w in weights.items()
        )
    tokenizer = load_tokenizer(merged)
    tuner = Finetuner(load_model(merged, device="cpu", is_trained=True), sft, total_steps=1)
    assert tuner.loss(samples(tokenizer, *changes)[1]) == pytest.approx(losses[best], rel=1e-4)

    assert read_status(root / "validation")["state"] == "finished"
    played = list(read_episodes(root / "validation" / "episodes" / "greedy.jsonl.gz"))
    assert [episode.seed for episode in played] == list(range(123, 129))
    assert "FrozenLake | greedy" in (merged / "validate.log").read_text()
    assert (root / "train.log").read_text().count("sft/val_loss") == 4

    before = (merged / "model.safetensors").stat().st_mtime_ns
    assert command.run_sft(config, sft) == merged
    assert (merged / "model.safetensors").stat().st_mtime_ns == before
    assert "has been validated" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"holds a run with sft\.optim\.lr=.*, this one asks for 0\.1"):
        command.run_sft(*configured(*changes, "sft.optim.lr=0.1"))


@pytest.mark.parametrize(("rank", "threads"), [(0, 1), (4, 1), (0, 2)])
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path, rank, threads, monkeypatch):
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
    assert "Choose another sft.output_dir" in capsys.readouterr().err


def test_every_key_of_the_yaml_is_a_field():
    _, sft = load_sft()
    assert isinstance(sft, SftConfig)
    assert (sft.optim.lr_scheduler_type, sft.optim.betas, sft.optim.lr_warmup_steps_ratio) == (
        "cosine",
        (0.9, 0.95),
        0.1,
    )
