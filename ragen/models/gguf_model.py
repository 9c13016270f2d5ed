"""A GGUF file becomes a Hugging Face directory: everything is checked first, then tensor after tensor is written."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.errors import ConfigError, FileError
from ragen.files import check_writable, in_one_line, write_json
from ragen.models.catalogue import PROVENANCE_FILE
from ragen.models.folder import INDEX, check_folder, check_sizes
from ragen.models.gguf_architectures import (
    EMBEDDING,
    HEAD,
    ROPE_TENSORS,
    Architecture,
    architecture_of,
    finer_copy,
    hf_name,
    is_tied,
    model_config,
    part_of,
)
from ragen.models.gguf_file import BF16, F16, F32, Gguf, format_of, open_gguf, sha256_of
from ragen.models.gguf_tokenizer import check_tokenizer, write_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

SHARD_BYTES = 2 * 10**9
"""Weights are held in memory up to this size, then written to a file of their own."""
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
REPORTS = 10
"""Lines of progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What will be written, known from the header alone."""

    gguf: Gguf
    architecture: Architecture
    config: dict[str, Any]
    sources: dict[str, str]
    """Each tensor of the Hugging Face model, and its name in the file."""
    tokenizer: Path | None

    @property
    def num_bytes(self) -> int:
        item = ITEM_BYTES[self.config["dtype"]]
        return sum(item * math.prod(self.gguf.tensors[source].shape) for source in self.sources.values())


def convert_gguf(files: Sequence[Path], target: Path, *, tokenizer: Path | None = None, sha256: str = "") -> None:
    """Make the Hugging Face directory of a GGUF file; it appears under its name when it is whole."""
    check_target(target)
    if sha256 and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ConfigError(f"--sha256 {sha256[:80]} is not a sha256: it has 64 digits from 0 to f.")
    gguf = open_gguf(files)
    plan = make_plan(gguf, tokenizer=tokenizer)
    check_writable(target, "DIR", num_bytes=int(1.1 * plan.num_bytes), purpose="the converted model")
    print(f"{'checking' if sha256 else 'computing'} sha256 of {', '.join(path.name for path in gguf.paths)}")
    found = sha256_of(gguf.paths)
    if sha256 and found != sha256.lower():
        expected = f"sha256 {found}, expected {sha256.lower()}."
        if len(gguf.paths) == 1:
            raise FileError(f"{gguf.name} has {expected} It is another file, or damaged.")
        raise FileError(
            f"{gguf.name} and the other pieces, {len(gguf.paths)} together, have {expected} One of them is another "
            "file, or damaged, or --sha256 is that of one piece: it is of all of them, one after the other."
        )
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=target.parent) as scratch:
        built = Path(scratch) / target.name
        built.mkdir()
        write_folder(plan, built)
        source = {"source": [path.name for path in gguf.paths], "sha256": found, "formats": formats(gguf)}
        write_json(built / PROVENANCE_FILE, source)
        check_folder(built)
        built.rename(target)
    print(f"{target} is ready: model_path={target}")


def check_target(target: Path) -> None:
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        state = "is a file" if target.is_file() else "exists and is not empty"
        raise ConfigError(f"{target} {state}. Give a new folder for the converted model.")


def make_plan(gguf: Gguf, *, tokenizer: Path | None) -> Plan:
    """Check all that a header tells: architecture, tensors, sizes, tokenizer."""
    architecture = architecture_of(gguf)
    names = {name: hf_name(name, architecture, gguf.name) for name in gguf.tensors if name not in ROPE_TENSORS}
    check_tokenizer(gguf, tokenizer)
    tied = is_tied(gguf)
    if tied:
        kept = finer_copy(gguf)
        names = {source: name for source, name in names.items() if source not in (EMBEDDING, HEAD)}
        names[kept] = f"{architecture.names['token_embd']}.weight"
    config = model_config(gguf, architecture, is_tied=tied, dtype=stored_dtype(gguf))
    plan = Plan(
        gguf=gguf,
        architecture=architecture,
        config=config,
        sources={name: source for source, name in names.items()},
        tokenizer=tokenizer,
    )
    check_sizes(config, gguf.paths[0])
    check_tensors(plan)
    return plan


def stored_dtype(gguf: Gguf) -> str:
    """Unquantized matrices keep their format; others become bfloat16, what most models are published in."""
    kinds = {tensor.kind for tensor in gguf.tensors.values() if len(tensor.shape) > 1}
    exact = {F32: "float32", F16: "float16", BF16: "bfloat16"}
    return exact.get(next(iter(kinds)), "bfloat16") if len(kinds) == 1 else "bfloat16"


def check_tensors(plan: Plan) -> None:
    """The file holds just the tensors of the model that transformers makes of the configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            # The special ids come with the tokenizer; an architecture's own may lie outside a small vocabulary.
            config = AutoConfig.for_model(**plan.config, pad_token_id=None, bos_token_id=None, eos_token_id=None)
            weights = AutoModelForCausalLM.from_config(config, trust_remote_code=False).state_dict()
    except Exception as error:  # whatever a library makes of these numbers
        raise FileError(f"{plan.gguf.name}: its facts do not make a model: {in_one_line(error)}") from error
    expected = {name: tuple(weight.shape) for name, weight in weights.items()}
    if plan.config["tie_word_embeddings"]:
        expected.pop("lm_head.weight", None)
    arrived = {name: plan.gguf.tensors[source].shape for name, source in plan.sources.items()}
    wrong = sorted(name for name in expected | arrived if expected.get(name) != arrived.get(name))
    if wrong:
        raise FileError(
            f"{plan.gguf.name} does not hold the tensors of {plan.architecture.class_name}: {wrong[0]} is "
            f"{arrived.get(wrong[0], 'missing')}, expected {expected.get(wrong[0], 'none')} ({len(wrong)} such). "
            "Is the file whole, and its architecture named rightly?"
        )


def write_folder(plan: Plan, target: Path) -> None:
    """Configuration, tokenizer and weights into an empty folder."""
    import transformers

    ids = write_tokenizer(plan.gguf, plan.tokenizer, target)
    # Without its version transformers suspects an old fault of Mistral's in every tokenizer.
    write_json(target / "config.json", plan.config | ids | {"transformers_version": transformers.__version__})
    write_json(target / "generation_config.json", ids)
    write_weights(plan, target)


def write_weights(plan: Plan, target: Path) -> None:
    """One file, or several with an index where they would not fit into memory at once."""
    shards = list(shards_of(plan))
    done = 0
    total = len(plan.sources)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        weights = {}
        for name in names:
            weights[name] = read_weight(plan, name)
            done += 1
            if done * REPORTS // total > (done - 1) * REPORTS // total:
                print(f"converting: {done} of {total} tensors", flush=True)
        save_weights(weights, target / file)
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        write_json(target / INDEX, {"metadata": {"total_size": plan.num_bytes}, "weight_map": weight_map})


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """A safetensors file that whoever may read the config.json beside it may read."""
    from safetensors.torch import save_file

    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(path.with_name("config.json").stat().st_mode)  # safetensors makes it private; models are often shared


def shards_of(plan: Plan) -> Iterator[list[str]]:
    """Names of the tensors that go into one file each."""
    shard: list[str] = []
    size = 0
    for name, source in plan.sources.items():
        num_bytes = ITEM_BYTES[plan.config["dtype"]] * math.prod(plan.gguf.tensors[source].shape)
        if shard and size + num_bytes > SHARD_BYTES:
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += num_bytes
    yield shard


def read_weight(plan: Plan, name: str) -> Tensor:
    """A tensor as the Hugging Face model has it."""
    import torch

    source = plan.sources[name]
    weight = torch.from_numpy(plan.gguf.read(source).copy())
    weight = plan.architecture.undo(part_of(source), weight, plan.config).to(getattr(torch, plan.config["dtype"]))
    if not weight.isfinite().all():
        raise FileError(
            f"{plan.gguf.name}: {source} holds NaN or infinity. The file is damaged, or its pieces were given in "
            "another order; --sha256 tells."
        )
    return weight.contiguous()


def formats(gguf: Gguf) -> dict[str, int]:
    """How many tensors are in which format."""
    names = [format_of(tensor.kind, tensor.pieces[0])[0] for tensor in gguf.tensors.values()]
    return {name: names.count(name) for name in sorted(set(names))}
