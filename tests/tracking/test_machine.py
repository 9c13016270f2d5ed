"""What a run ran on and with."""

import subprocess

import pytest

import ragen
from ragen.tracking import machine
from ragen.tracking.machine import Gpu, commit_of, installed_version, machine_facts, used_gpus, version_facts
from tests.sweeps.driving.test_slots import pretend_nvidia_smi

LISTED = r"0, GPU-aa11, NVIDIA H200\n1, GPU-bb22, NVIDIA H100\n"


def git(folder, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *author, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "project"
    (folder / "inside").mkdir(parents=True)
    (folder / "code.py").write_text("1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_checkout_has_a_commit_and_says_when_files_differ_from_it(checkout):
    commit = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == commit
    (checkout / "notes.txt").write_text("not tracked")
    assert commit_of(checkout) == commit
    (checkout / "code.py").write_text("2\n")
    assert commit_of(checkout) == f"{commit} with changes"


def test_a_package_inside_the_checkout_of_something_else_has_no_commit(checkout, tmp_path):
    assert commit_of(checkout / "inside") is None
    assert commit_of(tmp_path) is None


def test_without_git_there_is_no_commit(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(checkout) is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", [Gpu(name="NVIDIA H100", uuid="GPU-bb22")]),
        ("1,0", [Gpu(name="NVIDIA H100", uuid="GPU-bb22"), Gpu(name="NVIDIA H200", uuid="GPU-aa11")]),
        ("GPU-aa", [Gpu(name="NVIDIA H200", uuid="GPU-aa11")]),
        ("MIG-7", [Gpu(name="MIG-7", uuid="")]),
        (None, [Gpu(name="NVIDIA H200", uuid="GPU-aa11"), Gpu(name="NVIDIA H100", uuid="GPU-bb22")]),
    ],
)
def test_the_gpus_of_a_run_are_those_that_cuda_sees(tmp_path, monkeypatch, visible, expected):
    pretend_nvidia_smi(tmp_path, monkeypatch, LISTED)
    if visible is None:
        monkeypatch.delenv(machine.VISIBLE, raising=False)
    else:
        monkeypatch.setenv(machine.VISIBLE, visible)
    assert used_gpus("cuda:0", 2) == expected
    assert used_gpus("cuda", 1) == expected[:1]
    assert used_gpus("cpu", 2) == []


def test_a_machine_has_a_processor_and_cores():
    found = machine_facts([Gpu(name="NVIDIA H200", uuid="GPU-aa11")])
    assert found["processor"] and 1 <= found["usable_cores"] <= found["cores"] and found["memory_gib"] >= 1
    assert found["gpus"] == ["NVIDIA H200"]


def test_where_nothing_names_the_processor_its_architecture_does(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert machine.processor_name() == "riscv64"


def test_versions_are_those_that_are_installed():
    found = version_facts("native")
    assert (found["ragen"], found["engine"]) == (ragen.__version__, "native")
    assert found["torch"] == installed_version("torch") and installed_version("no-such-package") is None
    assert version_facts("vllm")["engine"] == f"vllm {installed_version('vllm')}"
