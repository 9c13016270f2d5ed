"""The GPUs of a machine, and how they are cut into slots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ragen.cli.sweep import main
from ragen.sweeps.driving.slots import (
    Machine,
    Slot,
    cut_slots,
    find_machine,
    short_model,
    thread_settings,
)
from tests.sweeps.sweeping import dry_run


@pytest.mark.parametrize(
    "name, short",
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA L40S", "L40S"),
        ("Graphics Device", ""),
    ],
)
def test_short_names_of_gpus(name, short):
    assert short_model(name) == short


def test_runs_share_a_gpu_only_when_all_are_taken():
    slots = cut_slots(Machine(gpus=("0", "1"), models={}, is_cpu=False), 1, 2)
    assert [slot.devices for slot in slots] == ["0", "1", "0", "1"]


def test_slots_are_consecutive_and_labelled():
    machine = Machine(gpus=tuple("012345"), models={**dict.fromkeys("012", "H100"), "3": "A100"}, is_cpu=False)
    slots = cut_slots(machine, 2)
    assert [(slot.devices, slot.label) for slot in slots] == [("0,1", "2xH100"), ("2,3", "2xmixed"), ("4,5", "2xmixed")]
    assert [slot.label for slot in cut_slots(machine, 1)][-2:] == ["1xGPU4", "1xGPU5"]


def pretend_nvidia_smi(folder: Path, monkeypatch, lines: str) -> None:
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_gpus_are_those_nvidia_smi_lists(tmp_path, monkeypatch, capsys):
    pretend_nvidia_smi(tmp_path, monkeypatch, r"0, NVIDIA H100 80GB HBM3\n1, NVIDIA H100 80GB HBM3\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    commands = dry_run(capsys, "kl", "--kl-values", "0,0.1,0.01")
    assert [command["CUDA_VISIBLE_DEVICES"] for command in commands] == ["0", "1", "0"]
    assert find_machine(["1"]).models["1"] == "H100"
    [command] = dry_run(capsys, "grad-analysis")
    assert command["trainer.n_gpus_per_node"] == "2", "the helper takes all"


def test_gpus_of_others_are_left_alone(tmp_path, monkeypatch):
    pretend_nvidia_smi(tmp_path, monkeypatch, r"0, NVIDIA H100\n1, NVIDIA H100\n2, NVIDIA H100\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert find_machine(None).gpus == ("1", "2")


def test_without_a_gpu_there_is_one_slot_on_the_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ragen.sweeps.driving.slots.has_cuda", lambda: False)
    assert [slot.label for slot in cut_slots(find_machine(None), 1)] == ["1xCPU"]
    assert capsys.readouterr().out == "No CUDA device: runs use the CPU.\n", "how many at a time says the plan"
    assert [slot.label for slot in cut_slots(find_machine(["0", "1"]), 1)] == ["1xCPU", "1xCPU"]
    [command] = dry_run(capsys, "kl", "--kl-values", "0")
    assert (command["CUDA_VISIBLE_DEVICES"], command["trainer.n_gpus_per_node"]) == ("", "1")


def test_gpus_that_nobody_lists_are_assumed_to_be_eight(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("ragen.sweeps.driving.slots.has_cuda", lambda: True)
    assert main(["kl", "--dry-run", "--kl-values", "0"]) == 0
    assert "warning: nvidia-smi lists no GPUs, so 0,1,2,3,4,5,6,7 are assumed" in capsys.readouterr().out


def test_threads_are_shared_by_all_processes_of_all_runs(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    slots = [Slot(devices=ids, size=4, label="4xH100") for ids in ("0,1,2,3", "4,5,6,7")]
    assert thread_settings(slots)["OMP_NUM_THREADS"] == "4"
    assert thread_settings(slots[:1]) == {}, "a run alone divides by its own GPUs"
