"""Levels that a person plays: the prompts of a rollout, what replies do, and how long a level waits for its player."""

import sys
import time
from dataclasses import make_dataclass, replace

import pytest
import yaml

from ragen.config.load import load_config, to_dict
from ragen.env.base import Env, StepResult, step_info
from ragen.env.registry import REGISTRY
from ragen.errors import RagenError
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.policies import play_replies
from ragen.tracking.rundir import RunDir
from ragen.view.playing import session as play
from ragen.view.playing.session import Level, Session, Sessions, config_of, describe, solve
from ragen.view.reading.folders import NotThere
from tests.view.runs import write_run

ORIGIN = {"origin": "http://127.0.0.1"}
SOKOBAN = Level(run=None, tag="SimpleSokoban", seed=7)


@pytest.fixture
def run(tmp_path):
    """A run with a whole configuration: without thinking, on the lake."""
    folder = write_run(tmp_path / "runs" / "a")
    config = load_config("quickstart", ["agent_proxy.enable_think=False", "es_manager.format_penalty=-0.25"])
    RunDir(folder).write_config(yaml.safe_dump(to_dict(config)))
    return folder


def post(client, path: str, **fields):
    return client.post(f"/api/play/{path}", json=fields, headers=ORIGIN)


@pytest.mark.parametrize("mode", ["full", "limited_multi_turn", "single_turn"])
def test_the_prompts_are_those_of_a_rollout(tmp_path, monkeypatch, mode):
    config = load_config(overrides=[f"agent_proxy.context_window_mode={mode}", "agent_proxy.max_context_window=2"])
    monkeypatch.setattr(play, "config_of", lambda run: config)
    envs, prompts = replace(config.es_manager.val, env_groups=1, group_size=1), []
    envs = replace(envs, env_configs=replace(envs.env_configs, tags=["FrozenLake"], n_groups=[1]))
    answer = "look</think><answer>Up || nowhere</answer>"

    def reply(request) -> str:
        prompts.append(list(request.messages))
        return answer

    [played] = play_replies(config, EsManager(envs, config.custom_envs), reply, base_seed=7)
    session, seen = Session(Level(run=None, tag="FrozenLake", seed=7)), []
    while not session.is_over:
        seen.append(session.messages)
        session.say(answer)
    assert seen == prompts and len(seen) > 2
    assert session.episode == played


def test_a_level_is_played_to_its_end(client):
    game = post(client, "start", tag="SimpleSokoban", seed=7).json()
    assert [message["role"] for message in game["messages"]] == ["system", "user"]
    assert (game["is_over"], game["actions_left"], game["max_actions"]) == (False, 10, 2)
    assert game["final_frame"]["kind"] == "sokoban"
    nothing = post(client, "reply", session=game["session"], turn=0, text="no idea").json()
    assert (nothing["turns"][0]["is_parsed"], nothing["penalty"]) == (False, -0.1)
    assert "no usable action" in nothing["messages"][-1]["content"]
    text = "<think>push</think><answer>Up || Up</answer>"
    solved = post(client, "reply", session=game["session"], turn=1, text=text).json()
    assert (solved["is_over"], solved["status"], solved["reward"], solved["messages"]) == (True, "solved", 10.8, [])
    assert solved["turns"][1]["executed"] == ["Up", "Up"]
    over = post(client, "reply", session=game["session"], turn=2, text=text)
    assert (over.status_code, "over" in over.json()["error"]) == (400, True)


def test_a_reply_counts_once(client):
    game = post(client, "start", tag="FrozenLake", seed=3).json()
    answers = [post(client, "reply", session=game["session"], turn=0, text="x") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 400]
    assert answers[1].json()["error"] == "This turn has been answered already."


def test_the_configuration_of_a_run_counts(client, run):
    offer = client.get("/api/play?run=0%2Fa").json()
    assert offer["tags"][0] == {"tag": "FrozenLake", "env_type": "frozen_lake", "is_played": True}
    game = post(client, "start", run="0/a", tag="FrozenLake", seed=3).json()
    assert (game["has_thought"], game["prefix"]) == (False, "<answer>")
    game = post(client, "reply", session=game["session"], turn=0, text="").json()
    assert game["penalty"] == -0.25


@pytest.mark.parametrize(
    ("path", "fields", "status", "word"),
    [
        ("start", {"tag": "Chess", "seed": 1}, 404, "Chess"),
        ("start", {"tag": "FrozenLake", "seed": -1}, 400, "seed"),
        ("start", {"tag": "FrozenLake", "seed": "x"}, 400, "whole number"),
        ("start", {"tag": "FrozenLake", "seed": True}, 400, "whole number"),
        ("start", {"tag": "FrozenLake", "seed": False}, 400, "whole number"),
        ("start", {"tag": "FrozenLake", "seed": None}, 400, "whole number"),
        ("start", {"tag": "FrozenLake", "seed": 1, "member": []}, 400, "member"),
        ("start", {"tag": "FrozenLake", "seed": 1, "run": "../../etc"}, 404, "run"),
        ("reply", {"session": "nobody", "turn": 0, "text": "x"}, 404, "not played any more"),
    ],
)
def test_mistakes_are_sentences(client, path, fields, status, word):
    answer = post(client, path, **fields)
    assert (answer.status_code, word in answer.json()["error"]) == (status, True)


def test_a_reply_is_a_text_of_bounded_length(client):
    game = post(client, "start", tag="FrozenLake", seed=3).json()
    for text, word in ((["x"], "expected a text"), ("x" * 100_001, "100,001"), ("x" * 1_000_001, "1,000,000 bytes")):
        answer = post(client, "reply", session=game["session"], turn=0, text=text)
        assert (answer.status_code, word in answer.json()["error"]) == (400, True)
    for body in (b"{", b"[]", b"\xff", b"[" * 100_000):
        headers = ORIGIN | {"content-type": "application/json"}
        assert client.post("/api/play/reply", content=body, headers=headers).status_code == 400


def test_the_solver_plays_the_same_level(client):
    line = client.get("/api/play/solver?tag=SimpleSokoban&seed=7").json()
    assert (line["status"], line["reward"], line["missing"]) == ("solved", 10.8, "")
    assert [turn["executed"] for turn in line["turns"]] == [["Up", "Up"]]


class NoSolver(Env):
    """Never over, and knows no way."""

    def reset(self, seed: int, member: int = 0) -> str:
        return f"level {seed}, noise {member}"

    def step(self, action: int) -> StepResult:
        if action == 1:
            time.sleep(60)
        info = step_info(is_valid=True, is_effective=True, is_success=False)
        return StepResult(observation="on", reward=0.0, is_done=False, info=info)

    def render(self) -> str:
        return ""

    @property
    def actions(self) -> dict[int, str]:
        return {0: "go", 1: "hang"}


@pytest.fixture
def strange(monkeypatch):
    monkeypatch.setattr(NoSolver, "config_class", make_dataclass("Options", []), raising=False)
    monkeypatch.setitem(REGISTRY, "strange", f"{__name__}:NoSolver")
    config = config_of(None)
    tag = replace(config.custom_envs["FrozenLake"], env_type="strange", env_config=None)
    strange = replace(config, custom_envs={"Strange": tag})
    monkeypatch.setattr(play, "config_of", lambda run: strange)


def test_an_environment_without_a_solver_says_so(strange):
    line = solve(Level(run=None, tag="Strange", seed=7, member=3))
    assert line["missing"] == "This environment has no solver, or the level no solution."
    assert line["final_frame"] == {"kind": "text", "text": "level 7, noise 3"}


def test_an_environment_that_hangs_ends_its_episode(strange, monkeypatch):
    monkeypatch.setattr(play, "LIMIT_S", 0.2)
    session = Session(Level(run=None, tag="Strange", seed=7))
    session.say("<think></think><answer>go || hang</answer>")
    assert (session.is_over, session.episode.status.value) == (True, "env_timeout")
    assert "did not return within 0.2 s" in session.episode.error


def test_levels_that_nobody_plays_are_given_up():
    sessions = Sessions(most=2)
    names = [sessions.start(SOKOBAN)[0] for _ in range(2)]
    sessions.find(names[0])
    sessions.start(SOKOBAN)
    assert sessions.find(names[0]) and len(sessions) == 2
    with pytest.raises(NotThere):
        sessions.find(names[1])
    resting = Sessions(idle_s=0.0)
    name, _ = resting.start(SOKOBAN)
    with pytest.raises(NotThere):
        resting.find(name)


def test_what_can_be_played_begins_with_what_the_configuration_plays():
    offer = describe(None)
    assert [tag["tag"] for tag in offer["tags"] if tag["is_played"]] == [offer["tags"][0]["tag"]]
    assert {"SimpleSokoban", "FrozenLake", "Bandit"} <= {tag["tag"] for tag in offer["tags"]}


def test_an_unknown_tag_names_itself():
    with pytest.raises(RagenError, match="Chess"):
        Session(Level(run=None, tag="Chess", seed=0))


def test_free_text_is_played_and_solved_as_well():
    """An answer is one text: no action is offered, and none is taken apart."""
    level = Level(run=None, tag="Countdown", seed=7)
    session = Session(level)
    shown = session.to_json()
    assert shown["actions"] == [] and shown["max_actions"] == 1 and "Target" in shown["messages"][-1]["content"]
    [text] = session.solution() or []
    session.say(session.reply_of([text]))
    assert session.is_over and session.episode.turns[0].executed == [text]
    session.close()
    solved = solve(level)
    assert (solved["status"], solved["missing"], solved["reward"]) == ("solved", "", 1)


def test_tools_are_played_and_solved_as_well():
    """A person calls a tool as a function; its result is the next message."""
    level = Level(run=None, tag="Calculator", seed=7)
    session = Session(level)
    call, answer = session.solution() or []
    session.say(session.reply_of([call]))
    assert session.messages[-1] == {"role": "tool", "content": answer}
    [turn] = session.to_json()["turns"]
    assert (turn["executed"], turn["tool_result"], turn["role"]) == ([call], answer, "user")
    session.close()
    assert solve(level)["status"] == "solved"


@pytest.mark.parametrize(
    ("env_type", "reward_function", "reason"),
    [
        ("evil:Env", None, "this page loads none"),
        ("frozen_lake", "evil:reward", "this page loads none"),
        ("openenv", None, "this page asks nobody"),
    ],
)
def test_a_run_directory_loads_no_code_and_opens_no_address(
    client, run, tmp_path, monkeypatch, env_type, reward_function, reason
):
    (tmp_path / "evil.py").write_text("raise SystemExit('this must not be imported')")
    monkeypatch.chdir(tmp_path)
    stored = yaml.safe_load((run / "config.yaml").read_text())
    stored["custom_envs"]["FrozenLake"] |= {"env_type": env_type, "env_config": {}}
    stored["es_manager"]["reward_function"] = reward_function
    (run / "config.yaml").write_text(yaml.safe_dump(stored))
    answer = post(client, "start", run="0/a", tag="FrozenLake", seed=3)
    assert (answer.status_code, reason in answer.json()["error"]) == (400, True)
    assert "evil" not in sys.modules
