"""`ragen doctor`: what is there, what is missing, and what to type."""

import json
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as real_version

import pytest

from ragen import doctor
from ragen.cli import main
from ragen.doctor import CORE, EXTRAS, Piece, core_piece, examine, extra_piece, gpu_fact, python_piece, to_text


@pytest.fixture
def hide(monkeypatch):
    """Packages that are not installed from now on."""

    def hide(*names: str) -> None:
        def version(name: str) -> str:
            if name in names:
                raise PackageNotFoundError(name)
            return real_version(name)

        monkeypatch.setattr("importlib.metadata.version", version)

    return hide


def test_this_installation_is_whole():
    report = examine()
    assert report.is_healthy
    assert [piece.name for piece in report.core] == ["Python", *CORE]
    assert report.machine["torch threads"].isdecimal()
    assert to_text(report).endswith("The core is whole.")


def test_a_missing_extra_says_what_it_gives_and_how_to_get_it(hide):
    hide("matplotlib", "uvicorn")
    piece = extra_piece("plot")
    assert (piece.problem, piece.command) == ("matplotlib not installed", "pip install -e '.[plot]'")
    assert piece.gives.startswith("figures")
    assert extra_piece("view").problem == "uvicorn not installed"  # its other packages are there
    text = to_text(doctor.Report(machine={}, core=[], extras=[piece], tools=[]))
    assert "-- plot  matplotlib not installed  (figures" in text
    assert "Run: pip install -e '.[plot]'" in text


def test_a_missing_core_package_is_exit_status_one(hide, capsys):
    hide("safetensors")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "The core cannot run: safetensors." in out
    assert "Run: pip install 'safetensors" in out


def test_a_version_outside_the_declared_range_is_told(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["numpy>=2", "peft>=0.18; extra == 'lora'"])
    piece = core_piece("numpy")
    assert (piece.problem, piece.command) == ("1.0 is not within >=2", "pip install 'numpy>=2'")
    assert not core_piece("jinja2").problem  # nothing is declared here


def test_a_python_that_was_never_tried_is_told(monkeypatch):
    assert not python_piece().problem
    monkeypatch.setattr("sys.version_info", (3, 10, 0))
    assert python_piece().problem.startswith("RAGEN is tested on Python 3.11")


def test_a_torch_that_cannot_be_imported_is_told(monkeypatch):
    monkeypatch.setattr(doctor, "look_at_torch", lambda: ({}, "cannot be imported: libcudart.so.13 is missing"))
    report = examine()
    assert not report.is_healthy
    assert "torch" in to_text(report).splitlines()[-1]


def test_a_gpu_that_torch_does_not_see_is_told():
    assert gpu_fact([], [], "CPU build") == "none: runs use the CPU"
    assert gpu_fact(["H200"], ["H200, 143771 MiB"], "CUDA 13.0") == "H200, 143771 MiB"
    assert "but torch (CPU build) sees none" in gpu_fact([], ["H200, 143771 MiB"], "CPU build")


def test_json_is_for_programs(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_healthy"] is True
    assert {piece["name"] for piece in report["extras"]} == set(EXTRAS)


def test_pieces_of_several_packages_name_them():
    piece = Piece(name="view", versions={"starlette": "1.10", "uvicorn": "0.54"})
    assert "starlette 1.10, uvicorn 0.54" in to_text(doctor.Report(machine={}, core=[], extras=[piece], tools=[]))
