"""From a model name to a folder, without a network."""

import json
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest

from ragen.errors import ConfigError, ModelUnavailable
from ragen.models import resolve
from ragen.models.catalogue import CATALOGUE, PROVENANCE_FILE
from ragen.models.resolve import model_path_of, resolve_model


@pytest.fixture(autouse=True)
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fetched, nothing cached, no hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGEN_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def make_model(folder: Path, *, weights: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name in ["config.json", "tokenizer.json", *(["model.safetensors"] if weights else [])]:
        (folder / name).write_text("{}")
    if weights:
        (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")  # no tensor at all
    return folder


# --- tiny


@pytest.fixture
def tiny_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "embedded"
    for family in resolve.TINY_FAMILIES:
        make_model(root / family)
    monkeypatch.setattr(resolve, "TINY_ROOT", root)
    return root


@pytest.mark.parametrize(
    ("env_types", "family"),
    [
        (["sokoban"], "sokoban"),
        (["frozen_lake", "frozen_lake"], "frozen_lake"),
        (["bandit"], "bandit"),
        (["two_armed_bandit"], "bandit"),
        (["bandit", "two_armed_bandit"], "bandit"),
    ],
)
def test_tiny_is_chosen_by_the_environment(tiny_root: Path, env_types: list[str], family: str):
    assert resolve_model("tiny", env_types=env_types) == tiny_root / family


def test_tiny_can_be_named(tiny_root: Path):
    assert resolve_model("tiny/sokoban", env_types=["bandit"]) == tiny_root / "sokoban"


def test_tiny_without_environments_asks_for_a_family(tiny_root: Path):
    with pytest.raises(ConfigError, match="tiny/sokoban"):
        resolve_model("tiny")


def test_tiny_for_two_families_names_both(tiny_root: Path):
    with pytest.raises(ConfigError, match="frozen_lake, sokoban need tiny/frozen_lake and tiny/sokoban"):
        resolve_model("tiny", env_types=["sokoban", "frozen_lake"])


def test_tiny_for_an_environment_it_was_not_made_for_says_so(tiny_root: Path):
    with pytest.raises(ConfigError, match=r"No embedded model plays chess; 'tiny' plays bandit.*\(tiny/bandit, "):
        resolve_model("tiny", env_types=["sokoban", "chess"])


def test_an_unknown_tiny_lists_those_there_are(tiny_root: Path):
    with pytest.raises(ConfigError, match="tiny/bandit, tiny/frozen_lake, tiny/sokoban"):
        resolve_model("tiny/../secret")


def test_a_missing_embedded_model_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resolve, "TINY_ROOT", tmp_path)
    with pytest.raises(ModelUnavailable, match="Reinstall"):
        resolve_model("tiny/sokoban")


# --- local directories


def test_a_directory_with_a_config_is_itself(tmp_path: Path):
    folder = make_model(tmp_path / "mine")
    assert resolve_model(str(folder)) == folder
    assert resolve_model("mine") == Path("mine")
    assert resolve_model("./mine") == Path("mine")


def test_a_directory_goes_before_the_catalogue(tmp_path: Path):
    make_model(tmp_path / "SmolLM2-135M-Instruct")
    assert resolve_model("SmolLM2-135M-Instruct") == Path("SmolLM2-135M-Instruct")


def test_a_missing_directory_says_what_else_there_is():
    with pytest.raises(ModelUnavailable, match=r"/no/such/place does not exist.*ragen models.*model_path=tiny"):
        resolve_model("/no/such/place")


def test_a_file_is_not_a_model(tmp_path: Path):
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        resolve_model("./model.safetensors")


@pytest.mark.parametrize("inner", ["actor", "actor/huggingface"])
def test_a_checkpoint_folder_points_to_its_actor(tmp_path: Path, inner: str):
    step = tmp_path / "global_step_100"
    make_model(step / "critic")
    actor = make_model(step / inner)
    with pytest.raises(ConfigError) as caught:
        resolve_model(str(step))
    assert f"model_path={actor}" in str(caught.value)


def test_a_run_folder_points_to_its_latest_actor(tmp_path: Path):
    for step in (20, 100):
        make_model(tmp_path / f"run/checkpoints/global_step_{step}/actor")
    with pytest.raises(ConfigError, match=r"model_path=run/checkpoints/global_step_100/actor"):
        resolve_model("run")


def test_a_run_and_a_checkpoint_stand_for_their_newest_actor_and_other_names_for_themselves(tmp_path: Path):
    for step in (9, 20, 100):
        actor = make_model(tmp_path / f"run/global_step_{step}/actor")
    assert model_path_of("run") == model_path_of(Path("run/global_step_100")) == str(actor.relative_to(tmp_path))
    (tmp_path / "run/config.yaml").touch()
    for name in (str(actor), str(tmp_path), "tiny", "tiny/sokoban", "org/name", "nowhere"):
        assert model_path_of(name) == name


def test_a_sharded_checkpoint_says_how_to_merge_it(tmp_path: Path):
    actor = tmp_path / "global_step_5/actor"
    make_model(actor / "huggingface", weights=False)  # config and tokenizer only, as verl writes it
    (actor / "model_world_size_2_rank_0.pt").write_text("")
    with pytest.raises(ConfigError, match=r"verl\.model_merger"):
        resolve_model(str(tmp_path / "global_step_5"))


def test_an_adapter_is_told_from_a_model(tmp_path: Path):
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora/adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="LoRA adapter"):
        resolve_model("lora")


def test_any_other_directory_lacks_its_config(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        resolve_model("empty")


# --- the catalogue


def test_a_catalogue_model_says_how_to_fetch_it():
    with pytest.raises(ModelUnavailable, match="Run: ragen models fetch SmolLM2-135M-Instruct"):
        resolve_model("SmolLM2-135M-Instruct")


def test_a_fetched_model_is_its_folder(tmp_path: Path):
    entry = CATALOGUE["MiniMind2-Small"]
    folder = make_model(tmp_path / "models" / entry.name)
    (folder / PROVENANCE_FILE).write_text(json.dumps({"sha256": entry.sha256}))
    assert resolve_model("MiniMind2-Small") == folder


def test_a_model_fetched_from_another_package_has_to_be_fetched_again(tmp_path: Path):
    folder = make_model(tmp_path / "models/MiniMind2-Small")
    (folder / PROVENANCE_FILE).write_text(json.dumps({"sha256": "of an older package"}))
    with pytest.raises(ModelUnavailable, match="ragen models fetch"):
        resolve_model("MiniMind2-Small")


def test_a_tokenizer_is_no_model():
    with pytest.raises(ConfigError, match="tokenizer without weights"):
        resolve_model("qwen2.5-tokenizer")


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(ModelUnavailable, match=r"Did you mean 'SmolLM2-135M-Instruct'\?"):
        resolve_model("SmolLM2-135-Instruct")


# --- the hub


def cache_model(tmp_path: Path, *files: str) -> Path:
    """org/name in the layout of the hub's cache."""
    repo = tmp_path / "hub/models--org--name"
    snapshot = repo / "snapshots/abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("abc")
    for file in files:
        (snapshot / file).write_text("{}")
    return snapshot


def test_a_cached_hub_model_needs_no_hub(tmp_path: Path):
    snapshot = cache_model(tmp_path, "config.json", "tokenizer.json", "model.safetensors")
    assert resolve_model("org/name") == snapshot


def test_a_half_cached_hub_model_does_not_count(tmp_path: Path):
    snapshot = cache_model(tmp_path, "config.json", "tokenizer.json", "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE is set"):
        resolve_model("org/name")
    (snapshot / "model-2.safetensors").write_text("")
    assert resolve_model("org/name") == snapshot


def test_a_hub_that_answers_is_left_to_the_loader(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub, "model_info", lambda name, timeout: None)
    assert resolve_model("org/name") == "org/name"


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    def unreachable(name: str, timeout: float) -> None:
        raise ConnectionError

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub, "model_info", unreachable)
    with pytest.raises(ModelUnavailable, match=r"cannot be reached \(ConnectionError\).*local.*ragen models.*tiny"):
        resolve_model("Qwen/Qwen2.5-3B-Instruct")


def test_a_hub_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub, "model_info", lambda name, timeout: time.sleep(5))
    monkeypatch.setattr(resolve, "HUB_TIMEOUT_S", 0.1)
    with pytest.raises(ModelUnavailable, match="did not answer"):
        resolve_model("org/name")


def test_importing_the_models_loads_no_torch():
    code = (
        "import sys, ragen.models, ragen.models.listing, ragen.models.fetch\n"
        "print([name for name in ('torch', 'transformers', 'huggingface_hub') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert ended.stdout.strip() == "[]"


def test_a_gguf_file_is_to_be_converted(tmp_path: Path):
    file = tmp_path / "folder/m-q4_0.gguf"
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    for given in (file, file.parent):
        with pytest.raises(ConfigError, match=rf"Make a model of it: ragen models convert {file} DIR"):
            resolve_model(str(given))
