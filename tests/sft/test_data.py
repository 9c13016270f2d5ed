"""Demonstrations: what they hold, and the files they are kept in."""

import pyarrow.parquet
import pytest

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.llm_agent.build import build_chat
from ragen.sft import data
from ragen.sft.data import Demonstrator, chunks
from tests.sft.supervised import configured, samples


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
    options = config.custom_envs["FrozenLake"].env_config
    assert options is not None
    is_slippery = options["success_rate"] < 1
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
        yield

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
    with pytest.raises(Exception, match=r"sft\.data_dir=null.*pip install -e '\.\[sft\]'"):
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


def test_calls_of_tools_are_demonstrated_and_their_results_are_not_trained(tokenizer):
    config = load_config("calculator")
    demonstrate = Demonstrator(config, tokenizer, noise=0.0)
    episodes = demonstrate(chunks(["Calculator"], 100_000, 2)[0])
    for episode in episodes:
        call, answer = episode.turns
        assert episode.is_success and call.tool_result == answer.user and answer.role == "tool"
        last = list(data.to_rows(episode, "train"))[-1]
        assert [message["role"] for message in last["prompt"]] == ["system", "user", "assistant", "tool"]
    for episode, sample in zip(episodes, data.training_samples(config, episodes), strict=True):
        trained = [token for token, is_trained in zip(sample.input_ids, sample.loss_mask) if is_trained]
        assert trained == [token for turn in episode.turns for token in turn.response_ids]
        assert '"name": "calculate"' in demonstrate.chat.decode(trained)
