"""Memory of the CPU that this process may still take."""

import torch

from ragen.modeling import host_memory
from ragen.modeling.host_memory import address_room, cgroup_room, free_host_memory, given_back, machine_memory
from ragen.modeling.load import free_memory


def group(folder, limit: str, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache // 4}\nactive_file {cache - cache // 4}\n")


def test_a_group_leaves_its_limit_less_what_is_used_and_not_cache(tmp_path):
    (tmp_path / "own").write_text("0::/job/step\n")
    group(tmp_path / "fs", "max", 7, 0)
    group(tmp_path / "fs" / "job", "1000", 300, 100)
    group(tmp_path / "fs" / "job" / "step", "max", 300, 100)
    assert cgroup_room(tmp_path / "fs", tmp_path / "own") == [800]


def test_inside_a_container_the_root_counts(tmp_path):
    (tmp_path / "own").write_text("0::/docker/of/the/machine\n")
    group(tmp_path / "fs", "1000", 400, 0)
    assert cgroup_room(tmp_path / "fs", tmp_path / "own") == [600]


def test_without_limits_the_machine_counts(tmp_path):
    assert cgroup_room(tmp_path, tmp_path / "missing") == []
    assert 0 < free_host_memory() <= 2 * machine_memory()


def test_a_tensor_on_a_cpu_has_what_the_groups_leave(monkeypatch):
    monkeypatch.setattr(host_memory, "cgroup_room", lambda: [800.0, 1000.0])
    assert free_memory(torch.device("cpu")) == 800


def test_a_limit_of_addresses_leaves_what_is_not_mapped(monkeypatch, tmp_path):
    """ulimit -v 1000 (KiB) with 300 KiB mapped."""
    (tmp_path / "status").write_text("Name:\tpython\nVmSize:\t     300 kB\n")
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda kind: (1000 * 1024, -1))
    assert address_room(tmp_path / "status") == [700 * 1024]
    assert address_room(tmp_path / "missing") == [] and free_host_memory() == 0
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda kind: (host_memory.resource.RLIM_INFINITY, -1))
    assert address_room(tmp_path / "status") == []


def test_what_a_process_held_and_gave_back_it_may_take_again(tmp_path):
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t     900 kB\nVmRSS:\t     300 kB\n")
    assert given_back(tmp_path / "status") == 600 * 1024
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t     300 kB\n")
    assert given_back(tmp_path / "status") == given_back(tmp_path / "missing") == 0
    block = b"x" * 2**28
    del block
    assert given_back() > 0.9 * 2**28
