"""Every rule points at the episodes that show what it is about."""

import pytest

from ragen.cli import main
from ragen.tracking.advisories.evidence import CHOICES, find_exhibits
from ragen.tracking.advisories.health import read_health
from ragen.tracking.advisories.rules import RULES, advise, with_episodes
from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn


def turn(text: str = "go", **changes) -> Turn:
    values = {"user": "?", "prompt_ids": [1], "response_ids": [2], "logprobs": [-0.5], "stop_reason": "stop"}
    return Turn(**(values | {"text": text, "thought": text} | changes))


def episode(group: int, member: int, *turns: Turn, status: Status = Status.FAILED) -> Episode:
    return Episode(
        tag="A", env_type="a", group_id=group, member=member, seed=100 + group, turns=[*turns], status=status
    )


INVALID = {"manager_invalid_action": 1.0}
SOLVED = Status.SOLVED
# Rule -> episodes of two groups of two, and what the rule says of them.
SHOWN = {
    "form lost": (
        [episode(0, 0, turn()), episode(1, 0, turn(info=INVALID))],
        ["group 1: 1 of 1 replies are invalid", "group 1, member 0: 1 of 1 replies are invalid"],
    ),
    "silence pays": (
        [
            episode(0, 0, turn(), status=SOLVED),
            episode(0, 1, turn()),
            episode(1, 0, turn(), turn(info=INVALID)),
            episode(1, 1, turn(info=INVALID), turn(info=INVALID)),
        ],
        ["group 1: 3 of 4 replies are invalid", "group 1, member 1: 2 of 2 replies are invalid"],
    ),
    "no form": (
        [episode(0, 0, turn(info=INVALID)), episode(1, 0, turn())],
        ["group 0: 1 of 1 replies are invalid", "group 0, member 0: 1 of 1 replies are invalid"],
    ),
    "all fail": (
        [
            episode(0, 0, turn(), status=Status.OUT_OF_TURNS),
            episode(0, 1, turn(), status=Status.OUT_OF_TURNS),
            episode(1, 0, turn(reward=0.5)),
        ],
        [
            "group 1, member 0: of those that failed it earned most, 0.50",
            "group 0, member 0: 2 of 3 episodes end so: out of turns",
        ],
    ),
    "no variance": (
        [
            episode(0, 0, turn(reward=1.0), status=SOLVED),
            episode(0, 1, turn(reward=1.0), status=SOLVED),
            episode(1, 0, turn(reward=-0.25)),
            episode(1, 1, turn(reward=-0.25)),
        ],
        ["group 1: all 2 members earned -0.25"],
    ),
    "template collapse": (
        [
            episode(0, 0, turn("same")),
            episode(0, 1, turn("same")),
            episode(1, 0, turn("own")),
            episode(1, 1, turn("same")),
        ],
        [
            "group 0, member 0: its first thought is word for word that of 3 episodes on 2 levels",
            "group 1, member 1: its first thought is word for word that of 3 episodes on 2 levels",
        ],
    ),
    "entropy collapse": (
        [episode(0, 0, turn("a")), episode(0, 1, turn("b")), episode(1, 0, turn("c")), episode(1, 1, turn("c"))],
        ["group 1: 2 members began with the same reply", "group 0: 2 members began with 2 different replies"],
    ),
    "few actions": (
        [
            episode(0, 0, turn(), status=SOLVED),
            episode(0, 1, turn(executed=["go", "on"]), turn(executed=["go"]), status=Status.OUT_OF_TURNS),
            episode(1, 0, turn(executed=["go"]), turn(executed=["go"]), status=Status.OUT_OF_TURNS),
        ],
        [
            "group 1, member 0: 2 actions in 2 turns, and none is left",
            "group 0, member 1: 3 actions in 2 turns, and none is left",
        ],
    ),
    "critic useless": (
        [episode(0, 0, turn(advantages=[0.5])), episode(0, 1, turn(advantages=[-2.0, 0.1])), episode(1, 0, turn())],
        ["group 0, member 0: an advantage of +0.50", "group 0, member 1: an advantage of -2.00"],
    ),
    "mismatch": (
        [episode(0, 0, turn()), episode(0, 1, turn(logprobs=[-0.1, -9.0]))],
        ["group 0, member 1: a token with a log-prob of -9.0, where such differences are largest"],
    ),
    "truncation": (
        [
            episode(0, 0, turn()),
            episode(0, 1, turn(stop_reason="length", response_ids=[1, 2, 3])),
            episode(1, 0, turn(), status=Status.CONTEXT_FULL),
        ],
        [
            "group 0, member 1: a reply was cut after 3 tokens; so in 1 of 3 episodes",
            "group 1, member 0: the context is full; so in 1 of 3 episodes",
        ],
    ),
    "failed": (
        [episode(0, 0, turn()), episode(1, 0, status=Status.ENV_TIMEOUT)],
        ["group 1, member 0: env timeout; so in 1 of 2 episodes"],
    ),
    "stalled": (
        [episode(0, 0, turn()), episode(1, 0, status=Status.ENV_TIMEOUT)],
        ["group 1, member 0: env timeout; so in 1 of 2 episodes"],
    ),
    "memory": (
        [episode(0, 0, turn()), episode(0, 1, turn(), turn())],
        ["group 0, member 1: the longest of the rollout, 4 tokens"],
    ),
    "all solved": ([episode(0, 0, turn(), status=SOLVED)], ["group 0, member 0: one of 1 solved"]),
    "no progress": (
        [episode(0, 0, turn(reward=1.0), status=SOLVED), episode(1, 0, turn())],
        ["group 1, member 0: of those that failed it earned most, 0.00"],
    ),
    "healthy": (
        [episode(0, 0, turn(), status=SOLVED), episode(1, 0, turn())],
        ["group 0, member 0: one of 1 solved", "group 1, member 0: one of 1 failed"],
    ),
}
# Rule -> episodes that do not show it.
UNREMARKABLE = {
    "form lost": [episode(0, 0, turn())],
    "silence pays": [episode(0, 0, turn())],
    "all fail": [episode(0, 0, turn(), status=SOLVED)],
    "no variance": [episode(0, 0, turn(), status=SOLVED)],
    "few actions": [episode(0, 0, turn())],
    "critic useless": [episode(0, 0, turn())],
    "truncation": [episode(0, 0, turn())],
}


def test_every_rule_has_a_choice():
    assert [*CHOICES] == [rule.__name__.replace("_", " ") for rule in RULES] + ["healthy"]
    assert [*SHOWN] == [*CHOICES]


@pytest.mark.parametrize("rule", SHOWN)
def test_a_rule_points_at_what_shows_it(rule, tmp_path):
    episodes, expected = SHOWN[rule]
    kind = "val" if rule == "no progress" else "train"
    RunDir(tmp_path).write_episodes(f"{kind}_step_3", episodes)
    found = find_exhibits(tmp_path, [rule], last_step=3)[rule]
    assert [str(each) for each in found] == [f"{kind}_step_3, {text}" for text in expected]
    for each in found:
        assert episodes[each.index].group_id == each.group and each.member in (None, episodes[each.index].member)


@pytest.mark.parametrize("rule", UNREMARKABLE)
def test_a_rule_points_at_nothing_where_nothing_shows_it(rule, tmp_path):
    RunDir(tmp_path).write_episodes("train_step_3", UNREMARKABLE[rule])
    assert find_exhibits(tmp_path, [rule], last_step=3)[rule] == ()


def test_the_newest_rollout_counts_and_one_that_cannot_be_read_has_nothing(tmp_path):
    run = RunDir(tmp_path)
    assert find_exhibits(tmp_path, ["healthy"], last_step=9) == {"healthy": ()}
    for step in (2, 10, 11):
        run.write_episodes(f"train_step_{step}", SHOWN["healthy"][0])
    run.write_episodes("sampled", SHOWN["healthy"][0])
    files = [find_exhibits(tmp_path, ["healthy"], last_step=step)["healthy"] for step in (1, 9, 10)]
    assert [[each.file for each in found] for found in files] == [[], ["train_step_2"] * 2, ["train_step_10"] * 2]
    (tmp_path / "episodes" / "train_step_11.jsonl.gz").write_bytes(b"no gzip at all")
    assert find_exhibits(tmp_path, ["healthy"], last_step=11) == {"healthy": ()}


def test_diagnose_names_episodes_and_the_command_that_prints_them(tmp_path, capsys):
    run = RunDir(tmp_path / "run")
    row = {"train/A/success": 0.0, "train/A/manager_invalid_action": 0.0}
    for step in range(1, 8):
        run.log(step, row)
    run.write_status("finished")
    run.write_episodes("train_step_7", SHOWN["all fail"][0])
    assert main(["diagnose", str(run.path)]) == 0
    said = capsys.readouterr().out
    command = f"ragen show {run.path} --rollout train_step_7 --seed 101 --member 0"
    text = "look at train_step_7, group 1, member 0: of those that failed it earned most, 0.50"
    assert f"  {text}\n    {command}\n" in said
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out.count("reward 0.5") == 2  # of the episode and of its turn
    assert with_episodes(advise(read_health(run.path)), run.path)[0].episodes[0].index == 2
