"""GPUs that a configuration names and the machine lacks are refused, or what happens instead is said."""

import pytest

from ragen.cli import main
from ragen.config import load_config
from ragen.config.schema import Config
from ragen.errors import ConfigError
from ragen.tracking.machine import query_gpus
from ragen.trainer.starting.devices import check_devices, device_notes
from tests.sweeps.driving.test_slots import pretend_nvidia_smi

VARIABLE = "CUDA_VISIBLE_DEVICES"


def asking_for(gpus: str, *overrides: str) -> Config:
    return load_config("quickstart", [f"system.{VARIABLE}='{gpus}'", *overrides])


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    pretend_nvidia_smi(tmp_path, monkeypatch, r"0\n1\n")
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_nvidia_smi_does_not_list_is_refused_before_torch(capsys, tmp_path):
    folder = f"trainer.default_local_dir={tmp_path / 'run'}"
    assert main(["train", "--config-name", "quickstart", folder, f"system.{VARIABLE}=5"]) == 1
    said = capsys.readouterr()
    assert said.err == (
        f"error: system.{VARIABLE}=5: nvidia-smi lists no GPU 5. Name some of 0, 1; an empty text, "
        f"\"system.{VARIABLE}=''\", is the CPU.\n"
    )
    assert "Loading torch" not in said.out and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("gpus", ["0", "1", "", "GPU-8932f937", "MIG-1"])
def test_gpus_that_are_there_the_cpu_and_names_that_only_cuda_knows_are_taken(gpus: str):
    check_devices(asking_for(gpus))


@pytest.mark.usefixtures("two_gpus")
def test_of_several_gpus_the_missing_ones_are_named():
    with pytest.raises(ConfigError, match=r"lists no GPU 2, 3\. Name some of 0, 1;"):
        check_devices(asking_for("1,2,3", "trainer.n_gpus_per_node=3"))


@pytest.mark.usefixtures("two_gpus")
def test_a_cluster_has_gpus_that_this_machine_does_not_list():
    check_devices(asking_for("5", "ray_kwargs.ray_init.address=auto"))


def test_without_nvidia_smi_any_number_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert query_gpus("index") == []
    check_devices(asking_for("5"))


@pytest.mark.usefixtures("two_gpus")
def test_the_environment_wins_and_that_is_said(monkeypatch):
    assert list(device_notes(asking_for("5"))) == []
    monkeypatch.setenv(VARIABLE, "1")
    check_devices(asking_for("5"))
    assert list(device_notes(asking_for("5"))) == [f"{VARIABLE}=1 of the environment is used, not system.{VARIABLE}=5."]
    assert list(device_notes(asking_for("1"))) == []
    monkeypatch.setenv(VARIABLE, "")
    assert list(device_notes(asking_for("0"))) == [
        f"{VARIABLE}='' of the environment is used, not system.{VARIABLE}=0."
    ]
