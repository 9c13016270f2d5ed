"""Families of models on a CPU: a rollout, an update and a checkpoint each, held against Hugging Face's own modules.

The chat templates are tested in tests/llm_agent/test_chat.py, packing in tests/modeling/attention/test_packed.py.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from ragen.cli import main
from ragen.learners.actor import score_logprobs
from ragen.learners.batch import make_batch
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.trainer.build import build_trainer
from ragen.types import Sample
from tests.models.gguf_bytes import write_gguf
from tests.sft.supervised import SMALL as SFT
from tests.trainer.family_folders import FOLDERS, REFUSED, WINDOW, write_folder
from tests.trainer.runs import LAKE, Run, small_config, train

ONE_STEP = (
    "trainer.total_training_steps=1",
    "trainer.test_freq=0",
    "trainer.save_freq=1",
    "trainer.val_before_train=False",
    "es_manager.train.env_groups=2",
    "es_manager.train.group_size=2",
    "ppo_mini_batch_size=4",
    "micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.response_length=16",
    "actor_rollout_ref.rollout.max_model_len=2048",
    "actor_rollout_ref.rollout.rollout_filter_value=1",
)


@dataclass(frozen=True)
class Trained:
    """A family's folder and the run that trained it by one step of PPO."""

    name: str
    folder: Path
    run: Run

    @property
    def samples(self) -> list[Sample]:
        episodes = self.run.episodes(1)
        return to_samples(episodes, [0.0] * len(episodes), is_full_context=True, use_turn_scores=False)


def train_family(name: str, root: Path, *changes: str) -> Trained:
    folder = root / name if (root / name).exists() else write_folder(name, root / name)
    return Trained(name, folder, train(root / "run", f"model_path={folder}", *ONE_STEP, *changes, env=LAKE))


@pytest.fixture(scope="module", params=FOLDERS)
def trained(request, tmp_path_factory) -> Trained:
    return train_family(request.param, tmp_path_factory.mktemp(request.param))


def logprobs_of_hugging_face(folder: Path, samples: list[Sample]) -> list[torch.Tensor]:
    """Of all tokens but the first of each sequence, one sequence at a time, with the family's own masks."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    for sample in samples:
        ids = torch.tensor([sample.input_ids])
        with torch.no_grad():
            logprobs = model(ids).logits[0, :-1].log_softmax(-1)
        found.append(logprobs.gather(1, ids[0, 1:, None])[:, 0])
    return found


def test_engine_and_packed_passes_compute_what_hugging_face_does(trained: Trained):
    tokenizer = load_tokenizer(trained.folder)
    end = Chat(tokenizer, forced_prefix="<think>").end_of_turn_id
    assert end is not None
    played = trained.samples
    assert min(len(sample.input_ids) for sample in played) > 4 * WINDOW
    # The end of a reply counts also where it is the token that pads.
    samples = [
        replace(
            s, input_ids=[*s.input_ids, end], loss_mask=[*s.loss_mask, 1], logprobs=[*s.logprobs, 0.0], entropies=[]
        )
        for s in played
    ]
    expected = logprobs_of_hugging_face(trained.folder, samples)
    packed, _ = score_logprobs(load_model(trained.folder), make_batch(samples, {}), temperature=1.0, max_samples=4)
    for row, (sample, truth) in enumerate(zip(samples, expected, strict=True)):
        is_sampled = torch.tensor(sample.loss_mask[1:]).bool()
        torch.testing.assert_close(packed[row, 1 : len(truth) + 1][is_sampled], truth[is_sampled], atol=2e-4, rtol=1e-4)
        by_engine = torch.tensor(sample.logprobs[1:-1])[is_sampled[:-1]]
        torch.testing.assert_close(by_engine, truth[:-1][is_sampled[:-1]], atol=2e-4, rtol=1e-4)


def test_an_episode_is_played_turn_by_turn_on_the_familys_template(trained: Trained):
    tokenizer = load_tokenizer(trained.folder)
    for episode, sample in zip(trained.run.episodes(1), trained.samples, strict=True):
        assert len(episode.turns) == 2
        text = tokenizer.decode(sample.input_ids)
        assert text.count(episode.system[:40]) == 1, "the system text is shown once"
        assert text.index(episode.system[:40]) < text.index("Turn 1")


def test_an_update_changes_the_weights_and_keeps_the_architecture(trained: Trained):
    checkpoint = resolve_model(str(trained.run.path / "global_step_1/actor"))
    before, after = load_model(trained.folder), load_model(checkpoint)
    assert type(after) is type(before)
    assert (after.lm_head.weight is after.get_input_embeddings().weight) == FOLDERS[trained.name].is_tied
    old, new = before.state_dict(), after.state_dict()
    assert old.keys() == new.keys()
    unchanged = [name for name in old if torch.equal(old[name], new[name])]
    assert unchanged == []
    metrics = trained.run.metrics[1]
    assert metrics["actor/grad_norm"] > 0 and metrics["critic/grad_norm"] > 0
    assert metrics["rollout/logprob_mismatch_max"] < 1e-4


def test_special_ids_survive_a_checkpoint(trained: Trained):
    checkpoint = trained.run.path / "global_step_1/actor"
    before, after = load_tokenizer(trained.folder), load_tokenizer(checkpoint)
    assert (after.eos_token_id, after.pad_token_id) == (before.eos_token_id, before.pad_token_id)
    config, saved = (json.loads((folder / "config.json").read_text()) for folder in (trained.folder, checkpoint))
    assert (saved["eos_token_id"], saved["pad_token_id"]) == (config["eos_token_id"], config["pad_token_id"])


def test_a_critic_of_a_family_without_a_classifier_resumes(tmp_path: Path):
    train_family("gemma3", tmp_path)
    run = train_family("gemma3", tmp_path, "trainer.total_training_steps=2").run
    assert run.checkpoints == ["global_step_2"]
    architectures = json.loads((run.path / "global_step_2/critic/config.json").read_text())["architectures"]
    assert architectures == ["Gemma3TextForTokenClassification"]


@pytest.mark.parametrize("name", ["phi3", "gemma3"])
def test_adapters_find_the_layers_of_a_family_and_are_merged(tmp_path: Path, name: str):
    trained = train_family(name, tmp_path, "lora.rank=4")
    before, after = load_model(trained.folder), load_model(trained.run.path / "global_step_1/actor")
    old, new = before.state_dict(), after.state_dict()
    changed = {key.split(".")[-2] for key in old if not torch.equal(old[key], new[key])}
    expected = {
        "phi3": {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"},
        "gemma3": {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    }
    assert changed == expected[name]


@pytest.mark.parametrize("name", ["gemma2", "qwen3", "qwen2"])
def test_what_is_done_otherwise_than_the_template_would_is_said_once(tmp_path: Path, name: str, capsys):
    folder = write_folder(name, tmp_path / name)
    trainer = build_trainer(small_config(tmp_path / "run", f"model_path={folder}", *ONE_STEP, env=LAKE))
    assert trainer is not None
    trainer.workers.close()
    expected = {"gemma2": ["has no system role"], "qwen3": ["without their reasoning"]}.get(name, [])
    said = [line for line in capsys.readouterr().out.splitlines() if "chat template" in line]
    assert len(said) == len(expected)
    assert all(part in line for part, line in zip(expected, said, strict=True))


@pytest.mark.parametrize("command", ["train", "sft", "eval"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_would_be_computed_wrongly_is_refused_before_anything_else(
    tmp_path: Path, monkeypatch, capsys, name: str, command: str
):
    monkeypatch.chdir(tmp_path)
    folder = write_folder(name, tmp_path / "model")
    length = "actor_rollout_ref.rollout.max_model_len=2048"
    words = {
        "train": ["--config-name", "quickstart", f"model_path={folder}", length],
        "sft": [*SFT, f"model_path={folder}", length, f"sft.output_dir={tmp_path}/sft"],
        "eval": [str(folder), length, "es_manager.val.env_configs.tags=[CoordFrozenLake]"],
    }
    assert main([command, *words[command]]) == 1
    said = capsys.readouterr().err
    reason = "custom attention" if (name, command) == ("gptj", "eval") else "its tokens meet outside of the attention"
    assert reason in said and "rollout.name=vllm" in said
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_converted_gguf_file_is_trained_like_any_other_model(tmp_path: Path, family: str):
    write_gguf(tmp_path / "m.gguf", family)
    assert main(["models", "convert", str(tmp_path / "m.gguf"), str(tmp_path / "model")]) == 0
    run = train(tmp_path / "run", f"model_path={tmp_path / 'model'}", *ONE_STEP, env=LAKE)
    assert run.metrics[1]["rollout/logprob_mismatch_max"] < 1e-4
    assert run.metrics[1]["actor/grad_norm"] > 0
