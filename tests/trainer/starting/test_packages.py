"""Packages that a training names and that are missing are told before anything is loaded or written."""

import sys

import pytest

from ragen.errors import MissingExtra
from ragen.sft.command import run as run_sft
from ragen.sft.config import load_sft
from ragen.trainer.starting.start import plan_start
from ragen.trainer.train import train
from tests.trainer.runs import overrides, small_config


@pytest.mark.parametrize("begin", [plan_start, train])
def test_without_peft_adapters_are_refused_before_the_folder_is_made(tmp_path, monkeypatch, begin):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"lora\.rank=8 needs peft.*pip install -e '\.\[lora\]'.*lora\.rank=0"):
        begin(small_config(tmp_path / "run", "lora.rank=8"))
    assert not (tmp_path / "run").exists()


def test_supervised_training_refuses_them_as_well(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"lora\.rank=8"):
        run_sft(*load_sft("base", overrides(tmp_path, "lora.rank=8", f"sft.output_dir={tmp_path}/sft")))
    assert not (tmp_path / "sft").exists()
