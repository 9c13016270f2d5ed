"""Episodes survive the disk: any text, any cut; compressed and plain files read alike."""

import gzip
import json
import random
import subprocess
from pathlib import Path

import pytest

from ragen.errors import RagenError
from ragen.tracking.episodes import (
    episode_files,
    episode_name,
    episode_to_json,
    find_episodes,
    member_spans,
    read_episodes,
    read_member,
)
from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn

BOTH = pytest.mark.parametrize("is_compressed", [True, False])


def an_episode(text: str = "<think>go</think><answer>Up</answer>", *, seed: int = 9) -> Episode:
    turn = Turn(
        user="Turn 1",
        prompt_ids=[1, 2],
        response_ids=[7, 8],
        logprobs=[-0.5, -0.25],
        entropies=[0.6931, 0.0012],
        text=text,
        stop_reason="stop_token",
        thought="go",
        actions=["Up"],
        executed=["Up"],
        reward=-0.1,
        info={"action_is_valid": 1.0},
    )
    return Episode(
        tag="T", env_type="t", group_id=3, member=1, seed=seed, system="sys", turns=[turn], status=Status.SOLVED
    )


def five(tmp_path: Path, *, is_compressed: bool = True) -> tuple[Path, list[Episode]]:
    episodes = [an_episode(seed=seed) for seed in range(5)]
    return RunDir(tmp_path).write_episodes("sampled", episodes, is_compressed=is_compressed), episodes


@BOTH
@pytest.mark.parametrize("text", ["plain", "new\nline and \u2028", "NUL \x00", "lone \ud800 surrogate", "√", ""])
def test_episodes_are_read_back_as_they_were_written(tmp_path, text, is_compressed):
    episodes = [an_episode(text), an_episode()]
    path = RunDir(tmp_path).write_episodes("sampled", episodes, is_compressed=is_compressed)
    assert list(read_episodes(path)) == episodes


def test_an_episode_file_holds_openai_messages_and_token_ids(tmp_path):
    path = RunDir(tmp_path).write_episodes("sampled", [an_episode()])
    record = json.loads(gzip.decompress(path.read_bytes()))
    assert [message["role"] for message in record["messages"]] == ["system", "user", "assistant"]
    assert record["turns"][0]["response_ids"] == [7, 8]
    assert record["turns"][0]["logprobs"] == [-0.5, -0.25]
    assert record["success"] is True


def test_a_file_of_an_earlier_version_lacks_levels_entropies_and_advantages_and_is_read(tmp_path):
    record = episode_to_json(an_episode())
    del record["level"]
    for turn in record["turns"]:
        del turn["entropies"], turn["advantages"]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (episode,) = read_episodes(path)
    assert episode.level == ""
    assert [turn.has_entropies for turn in episode.turns] == [False] * len(episode.turns)


def test_numbers_and_texts_come_before_lists(tmp_path):
    path, _ = five(tmp_path)
    record = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])
    for each in (record, record["turns"][0]):
        is_list = [isinstance(value, list | dict) for value in each.values()]
        assert is_list == sorted(is_list)


def test_gzip_and_zcat_read_all_lines(tmp_path):
    path, episodes = five(tmp_path)
    with gzip.open(path, "rt") as file:
        assert [json.loads(line)["seed"] for line in file] == [0, 1, 2, 3, 4]
    plain = subprocess.run(["zcat", path], check=True, capture_output=True).stdout
    (tmp_path / "plain.jsonl").write_bytes(plain)
    assert list(read_episodes(tmp_path / "plain.jsonl")) == episodes


def test_a_file_that_was_compressed_anew_in_one_piece_is_read(tmp_path):
    path, episodes = five(tmp_path)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())))
    assert list(read_episodes(path)) == episodes


def test_an_index_hops_from_line_to_line(tmp_path):
    path, episodes = five(tmp_path)
    spans = member_spans(path)
    assert [read_member(path, span) for span in spans] == episodes
    assert spans[-1].offset + spans[-1].length == path.stat().st_size


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    first, second = (five(tmp_path / name)[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


@BOTH
def test_every_cut_leaves_the_whole_lines_and_a_word(tmp_path, caplog, is_compressed):
    path, episodes = five(tmp_path, is_compressed=is_compressed)
    whole = path.read_bytes()
    if is_compressed:
        ends = [span.offset + span.length for span in member_spans(path)]
    else:
        ends = [position + 1 for position, byte in enumerate(whole) if byte == ord("\n")]
    for size in [*range(ends[1] + 1, ends[2]), *random.Random(0).sample(range(ends[2], len(whole)), 40)]:
        path.write_bytes(whole[:size])
        caplog.clear()
        count = sum(end <= size for end in ends)
        found = list(read_episodes(path))
        # A line of JSON is whole without its newline.
        assert found[:count] == episodes[:count] and len(found) <= count + (not is_compressed)
        assert len(found) > count or size in ends or f"{count} episodes are whole" in caplog.text
        assert not is_compressed or len(member_spans(path)) == count


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_binary_file_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(bytes(range(128, 256)) * 9)
    with pytest.raises(RagenError, match="line"):
        list(read_episodes(tmp_path / name))


def test_a_flipped_bit_is_an_error(tmp_path):
    path, _ = five(tmp_path)
    data = bytearray(path.read_bytes())
    data[member_spans(path)[2].offset + 60] ^= 4
    path.write_bytes(data)
    with pytest.raises(RagenError, match="after line 2: not gzip, or damaged"):
        list(read_episodes(path))


@BOTH
def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path, is_compressed):
    path, _ = five(tmp_path, is_compressed=is_compressed)
    path.write_bytes((gzip.compress(b"{}\n") if is_compressed else b"{}\n") + path.read_bytes())
    with pytest.raises(RagenError, match="line 1"):
        list(read_episodes(path))


def test_a_folder_without_episodes_says_what_to_give(tmp_path):
    with pytest.raises(RagenError, match="run directory"):
        episode_files(tmp_path)


def test_files_come_in_the_order_of_their_steps_and_the_new_form_counts(tmp_path):
    run = RunDir(tmp_path)
    for step in (1, 2, 10):
        run.write_episodes(f"train_step_{step}", [an_episode()], is_compressed=step != 2)
    run.write_episodes("train_step_1", [], is_compressed=False)
    assert [file.name for file in episode_files(tmp_path)] == [
        "train_step_1.jsonl.gz",
        "train_step_2.jsonl",
        "train_step_10.jsonl.gz",
    ]
    assert find_episodes(tmp_path, "train_step_1") == tmp_path / "episodes" / "train_step_1.jsonl.gz"
    assert find_episodes(tmp_path, "train_step_2") == tmp_path / "episodes" / "train_step_2.jsonl"
    assert find_episodes(tmp_path, "train_step_3") is None
    assert episode_name(Path("episodes/sampled_T0.5.jsonl.gz")) == "sampled_T0.5"


@BOTH
def test_what_a_resume_drops_is_kept_aside(tmp_path, is_compressed):
    run = RunDir(tmp_path)
    for step in (1, 2):
        run.write_episodes(f"train_step_{step}", [an_episode()], is_compressed=is_compressed)
    run.truncate_after(1)
    assert [episode_name(file) for file in episode_files(tmp_path)] == ["train_step_1"]
    (dropped,) = (tmp_path / "episodes" / "dropped").iterdir()
    assert list(read_episodes(dropped)) == [an_episode()]
