"""W&B goes offline by itself, never asks, and its files hold what was logged (real wandb, in processes of its own)."""

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ragen.tracking.tracker import RunFacts
from ragen.tracking.trackers import wandb_tracker
from tests.tracking.trackers import config_of_loggers

pytest.importorskip("wandb")

ROOT = Path(__file__).parents[2]
KEY = "0" * 40

PRELUDE = """
import sys
from pathlib import Path
from ragen.tracking.trackers import wandb_tracker
from tests.tracking.trackers import some_trackers

def trackers(path, **facts):
    return some_trackers(Path(path), "wandb", **facts)
"""


@pytest.fixture
def run_python(tmp_path):
    """Runs code in a process without any W&B login, with a terminal nobody types at."""
    home = tmp_path / "home"
    home.mkdir()

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        clean |= {"HOME": str(home), "NETRC": str(home / ".netrc"), **environment}
        return subprocess.run(
            [sys.executable, "-c", PRELUDE + code],
            cwd=ROOT,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def offline_folders(path: Path) -> list[Path]:
    return sorted((path / "wandb").glob("offline-run-*"))


def records(folder: Path) -> list[dict]:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def history(folder: Path) -> list[dict]:
    return [record["history"]["item"] for record in records(folder) if record["type"] == "history"]


def only(found: list[dict], kind: str) -> dict:
    (record,) = [record[kind] for record in found if record["type"] == kind]
    return record


def test_without_a_login_a_run_is_offline_and_says_so_once(tmp_path, run_python):
    code = f"""
with trackers({str(tmp_path)!r}) as t:
    t.log(0, {{"val-env/A/success": 0.25}})
    t.log_table(10, "rollout/group_rv_table", ["group_id", "reward_std"], [[3, 0.5], [4, None]])
    t.log(10, {{"actor/lr": 1e-6, "val-env/A/success": 0.5}})
    t.log_table(10, "val/generations", ["reply"], [["lone \\ud800 surrogate"]])
    t.close("early_stopped")
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    (folder,) = offline_folders(tmp_path)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("W&B is offline: there is no login") and line.endswith(f"wandb sync {folder}")

    found = records(folder)
    run = only(found, "run")
    assert (run["project"], run["display_name"]) == ("my_project", "my_run")
    assert run["config"]["update"]["seed"] == {"train": 10000, "val": 123}
    assert run["run_id"] == (tmp_path / "wandb" / "run_id.txt").read_text().strip()
    assert only(found, "exit")["exit_code"] == 0

    first, second = history(folder)
    assert (first["_step"], first["val-env/A/success"]) == (0, 0.25)
    assert (second["_step"], second["val-env/A/success"], second["actor/lr"]) == (10, 0.5, 1e-6)
    assert second["rollout/group_rv_table._type"] == second["val/generations._type"] == "table-file"
    (table,) = folder.glob("files/media/table/rollout/group_rv_table_*.table.json")
    assert json.loads(table.read_text()) == {"columns": ["group_id", "reward_std"], "data": [[3, 0.5], [4, None]]}
    home_files = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and ".cache" not in path.parts]
    assert home_files == [], "everything but wandb's own logs is in the run directory"


def test_without_a_network_a_run_is_offline_although_there_is_a_login(tmp_path, run_python):
    code = f"with trackers({str(tmp_path)!r}) as t:\n    t.log(1, {{'a': 1.0}})"
    result = run_python(code, WANDB_API_KEY=KEY, WANDB_BASE_URL="http://127.0.0.1:9")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("W&B is offline: http://127.0.0.1:9 cannot be reached")
    (folder,) = offline_folders(tmp_path)
    assert [row["_step"] for row in history(folder)] == [1]


class FakeRun:
    url, dir = "https://w/b", "unused"


class FakeWandb:
    """Stands in for wandb where a real one would need an account: remembers how a run was started."""

    def __init__(self, mode: str = "online"):
        self.mode = mode
        self.started: list[dict] = []

    def setup(self, settings=None):
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode, base_url="https://w"))

    def Settings(self, **settings):
        return SimpleNamespace(**settings)

    def login(self, *, prompt: bool, verify: bool) -> bool:
        assert not prompt
        return True

    def init(self, **arguments):
        self.started.append(arguments)
        return FakeRun()


@pytest.mark.parametrize(
    ("resumed_step", "stored_id", "resume"), [(None, "", None), (4, "abcd", "allow"), (None, "abcd", None)]
)
def test_with_login_and_network_a_run_is_online(tmp_path, monkeypatch, capsys, resumed_step, stored_id, resume):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(wandb_tracker, "_is_reachable", lambda url: True)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if stored_id:
        (tmp_path / "wandb").mkdir()
        (tmp_path / "wandb" / "run_id.txt").write_text(stored_id + "\n")
    wandb_tracker.WandbTracker(
        RunFacts(config=config_of_loggers("wandb"), path=tmp_path, total_steps=9, resumed_step=resumed_step)
    )
    (arguments,) = fake.started
    assert (arguments["mode"], arguments["resume"]) == ("online", resume)
    assert (arguments["id"] == "abcd") == (resume == "allow")
    assert capsys.readouterr().err == "W&B: https://w/b\n"


def test_any_answer_of_the_server_counts_as_a_network():
    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert wandb_tracker._is_reachable(f"http://127.0.0.1:{server.server_port}")
    assert not wandb_tracker._is_reachable("http://127.0.0.1:9")


def test_a_server_that_does_not_answer_leaves_a_run_offline(tmp_path, run_python):
    code = f"""
wandb_tracker.START_TIMEOUT = 2
wandb_tracker._is_reachable = lambda url: True
with trackers({str(tmp_path)!r}) as t:
    t.log(1, {{"a": 1.0}})
"""
    result = run_python(code, WANDB_API_KEY=KEY, WANDB_BASE_URL="http://127.0.0.1:9")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("W&B is offline: the server does not answer")
    (folder,) = offline_folders(tmp_path)
    assert [row["_step"] for row in history(folder)] == [1]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "WANDB_MODE asks for online, but there is no login"),
        ({"WANDB_API_KEY": KEY}, "WANDB_MODE asks for online, but http://127.0.0.1:9 cannot be reached"),
        ({"WANDB_API_KEY": "short"}, "wandb cannot start (AuthenticationError: WANDB_API_KEY invalid"),
    ],
)
def test_a_mode_that_cannot_be_had_stops_the_run(tmp_path, run_python, environment, message):
    code = f"with trackers({str(tmp_path)!r}) as t:\n    print('not reached')"
    result = run_python(code, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9", **environment)
    assert result.returncode != 0 and "not reached" not in result.stdout
    assert message in result.stderr.splitlines()[-1]


def test_a_mode_that_is_asked_for_is_used(tmp_path, run_python):
    code = f"with trackers({str(tmp_path)!r}) as t:\n    t.log(1, {{'a': 1.0}})"
    result = run_python(code, WANDB_MODE="offline", WANDB_API_KEY=KEY)
    assert result.stderr.startswith("W&B is offline: WANDB_MODE")
    assert len(offline_folders(tmp_path)) == 1

    result = run_python(code, WANDB_MODE="disabled", WANDB_API_KEY=KEY)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(offline_folders(tmp_path)) == 1


def test_a_resumed_run_keeps_its_id_and_a_new_one_does_not(tmp_path, run_python):
    code = f"""
import time
for resumed_step, step in ((None, 1), (1, 2), (None, 1)):
    with trackers({str(tmp_path)!r}, resumed_step=resumed_step) as t:
        t.log(step, {{"a": 1.0}})
    print(Path({str(tmp_path)!r}, "wandb", "run_id.txt").read_text().strip(), flush=True)
    time.sleep(1.1 * (resumed_step is None))  # wandb names the folder by id and second
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    first, resumed, new = result.stdout.split()
    assert first == resumed != new
    folders = offline_folders(tmp_path)
    # Two folders of one second sort by their random ids, so their order says nothing.
    found = [(only(records(folder), "run")["run_id"], [row["_step"] for row in history(folder)]) for folder in folders]
    assert sorted(found) == sorted([(first, [1]), (first, [2]), (new, [1])])


def test_nobody_is_asked_on_a_terminal(tmp_path, run_python):
    """A question would wait on the pseudo terminal until the time is over."""
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + f"with trackers({str(tmp_path)!r}) as t:\n    t.log(1, {{'a': 1.0}})\n")
    result = run_python(
        "import os, pty\n"
        f"status = pty.spawn([sys.executable, {str(script)!r}], lambda fd: os.read(fd, 1024))\n"
        "sys.exit(os.waitstatus_to_exitcode(status))",
        PYTHONPATH=str(ROOT),
    )
    assert result.returncode == 0, result.stdout
    (line,) = result.stdout.splitlines()
    assert line.startswith("W&B is offline: there is no login")


def test_a_failed_run_has_an_exit_code(tmp_path, run_python):
    result = run_python(f"with trackers({str(tmp_path)!r}) as t:\n    raise ValueError('boom')")
    assert "ValueError: boom" in result.stderr
    (folder,) = offline_folders(tmp_path)
    assert only(records(folder), "exit")["exit_code"] == 1


def test_of_a_killed_run_all_but_the_last_block_can_be_read(tmp_path, run_python):
    code = f"""
import os, signal, time
with trackers({str(tmp_path)!r}) as t:
    for step in range(1, 31):
        t.log(step, {{f"timing_s/stage_{{i}}": step + i / 7 for i in range(100)}})
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    result = run_python(code)
    assert result.returncode == -9
    time.sleep(1)
    (folder,) = offline_folders(tmp_path)
    steps = [row["_step"] for row in history(folder)]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= 10
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 30, "the run directory has every step"
