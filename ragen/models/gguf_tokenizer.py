"""Tokenizers of converted models: the files of the original model, or those rebuilt from what a GGUF file holds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError, ModelUnavailable
from ragen.files import in_one_line, read_object, write_json
from ragen.models.folder import VOCABULARY_FILES
from ragen.models.gguf_file import Gguf

COPIED_FILES = (
    *VOCABULARY_FILES,
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
FILLERS = (
    "<|endoftext|>",
    "<|finetune_right_pad_id|>",
    "<|pad|>",
    "<pad>",
    "[PAD]",
    "<|fim_pad|>",
    "<unk>",
)
"""Tokens that may fill a batch where pad is missing or the end token, best first."""
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""llama.cpp's kinds of tokens: never written as text; added to the vocabulary; rows without a token."""
MOST_DIFFERENT = 0.01
"""Share of tokens that may have another text than in the file: some have none, and get a name from each side.

A text that the file knows by another number is no such name, and refused."""

# How text is cut before merges, by llama.cpp's names.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {"qwen2": _WORDS % r"\p{N}", "llama-bpe": _WORDS % r"\p{N}{1,3}", "gpt-2": None, "smollm": None}


def check_tokenizer(gguf: Gguf, folder: Path | None) -> None:
    """Refuse a folder without the tokenizer of this file, or a file whose own tokenizer cannot be rebuilt."""
    if folder is None:
        check_rebuildable(gguf)
        return
    if not folder.is_dir() or not any((folder / name).is_file() for name in VOCABULARY_FILES):
        state = "holds no tokenizer" if folder.is_dir() else "is not a folder"
        raise ConfigError(
            f"--tokenizer {folder} {state}. Give a folder with one of {', '.join(VOCABULARY_FILES)}, beside "
            "tokenizer_config.json."
        )
    if (path := folder / "tokenizer_config.json").is_file() and "auto_map" in read_object(path):
        raise ConfigError(f"{path} names code of its own (auto_map), which is never run here. Give another tokenizer.")
    check_same_tokens(gguf, load(folder), folder)


def check_same_tokens(gguf: Gguf, tokenizer: Any, folder: Path) -> None:
    """Each id stands for the same text on both sides, and has a row in the embedding."""
    num_rows = gguf.tensors["token_embd.weight"].shape[0]
    # Special tokens of a sister model (Gemma 3's image) may lack a row: no text becomes one.
    spare = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special and index >= num_rows]
    if len(tokenizer) - len(spare) > num_rows:
        raise ConfigError(
            f"--tokenizer {folder} has {len(tokenizer)} tokens, the embedding of {gguf.name} has {num_rows} rows. "
            "Give the tokenizer of this model."
        )
    theirs = gguf.facts.get("tokenizer.ggml.tokens", [])
    ours = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), len(theirs)))))
    differing = [index for index, token in enumerate(ours) if token != theirs[index]]
    missing = sum(kind != UNUSED for kind in gguf.facts.get("tokenizer.ggml.token_type", [])[len(tokenizer) :])
    known = set(theirs)
    moved = [index for index in differing if ours[index] in known]
    if (moved or len(differing) + missing > MOST_DIFFERENT * len(theirs)) and theirs:
        first = [*moved, *differing][:1]
        example = "".join(f": {index} is {ours[index]!r} and {theirs[index]!r}" for index in first)
        raise ConfigError(
            f"--tokenizer {folder} is not that of {gguf.name}: {len(differing)} of {len(ours)} tokens differ{example}; "
            f"{missing} are missing. Give the tokenizer of this model."
        )
    if differing:
        print(
            f"{len(differing)} of {len(ours)} tokens have another name in the file, such as {differing[0]}: "
            f"{ours[differing[0]]!r} and {theirs[differing[0]]!r}"
        )


def check_rebuildable(gguf: Gguf) -> None:
    """The vocabularies that can be rebuilt here are byte-level BPE, cut in a known way."""
    kind, cut = gguf.facts.get("tokenizer.ggml.model"), gguf.facts.get("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in PATTERNS:
        raise ConfigError(
            f"The tokenizer inside {gguf.name} ({kind}, {cut}) cannot be rebuilt exactly; only byte-level BPE of these "
            f"kinds can: {', '.join(PATTERNS)}. Give the original model's tokenizer folder: --tokenizer DIR."
        )


def write_tokenizer(gguf: Gguf, folder: Path | None, target: Path) -> dict[str, Any]:
    """Put the tokenizer's files into a model folder; the ids it gives a meaning, as config.json names them."""
    if folder is None:
        rebuild(gguf, target)
    else:
        for name in COPIED_FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, target / name)
    tokenizer = load(target)
    if not getattr(tokenizer, "chat_template", None) and (template := gguf.facts.get("tokenizer.chat_template")):
        print("the tokenizer has no chat template: the one inside the GGUF file is used")
        (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    return settle_special_ids(gguf, tokenizer, target)


def settle_special_ids(gguf: Gguf, tokenizer: Any, target: Path) -> dict[str, Any]:
    """The ids of the tokenizer; a pad that is missing or the end token gets a token of its own.

    A mask made from pad would else hide the end of every reply. The ends are several where a model has an end of a turn
    beside the end of a text, its own first.
    """
    stated = [gguf.facts.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    ends = list(dict.fromkeys(index for index in (tokenizer.eos_token_id, *stated) if index is not None))
    if not ends:
        raise ConfigError(f"Neither {gguf.name} nor the tokenizer names an end token (eos). Give another --tokenizer.")
    pad = tokenizer.pad_token_id
    if pad is None or pad in ends:
        pad = find_filler(tokenizer, [gguf.facts.get("tokenizer.ggml.padding_token_id"), tokenizer.bos_token_id], ends)
        if pad is None:
            print("note: the vocabulary has no token to pad with; padding uses the end token")
            pad = ends[0]
        name_tokens(target, pad_token=tokenizer.convert_ids_to_tokens(pad))
    if tokenizer.eos_token_id is None:
        name_tokens(target, eos_token=tokenizer.convert_ids_to_tokens(ends[0]))
    bos = gguf.facts.get("tokenizer.ggml.bos_token_id") if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    ids = {"bos_token_id": bos, "eos_token_id": ends if len(ends) > 1 else ends[0], "pad_token_id": pad}
    return {name: index for name, index in ids.items() if index is not None}


def find_filler(tokenizer: Any, stated: Sequence[int | None], ends: Sequence[int]) -> int | None:
    """A token that can fill a batch: one named for it, one of those stated, or any that text never becomes."""
    vocabulary = tokenizer.get_vocab()
    named = [vocabulary.get(text) for text in FILLERS]
    special = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
    candidates = (*named, *stated, *sorted(special, reverse=True))
    return next((index for index in candidates if index is not None and index not in ends), None)


def name_tokens(target: Path, **tokens: str) -> None:
    """Give tokens a role in the files of a tokenizer."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = target / name
        if path.is_file() or name == "tokenizer_config.json":
            content = read_object(path) if path.is_file() else {}
            write_json(path, content | tokens)


def load(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # whatever a library makes of a folder's content
        raise ModelUnavailable(f"The tokenizer of {folder} cannot be loaded: {in_one_line(error)}") from error


def rebuild(gguf: Gguf, target: Path) -> None:
    """A byte-level BPE tokenizer from the vocabulary and merges inside a GGUF file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    facts = gguf.facts
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    cut = facts["tokenizer.ggml.pre"]
    vocabulary = {token: index for index, token in enumerate(tokens) if kinds[index] != UNUSED}
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut == "llama-bpe"))
    tokenizer.pre_tokenizer = cutting(cut)
    tokenizer.decoder = decoders.ByteLevel()
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    added = [token for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    roles = {role: facts.get(f"tokenizer.ggml.{name}_token_id") for role, name in ROLES.items()}
    named = {role: tokens[index] for role, index in roles.items() if index is not None}
    if facts.get("tokenizer.ggml.add_bos_token") and "bos_token" in named:
        bos = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, roles["bos_token"])]
        )
    tokenizer.save(str(target / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "extra_special_tokens": [token for token in special if token not in named.values()],
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts[f"{facts['general.architecture']}.context_length"],
        "chat_template": facts.get("tokenizer.chat_template"),
    }
    write_json(target / "tokenizer_config.json", config)


ROLES = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
"""Roles of tokens, and llama.cpp's names for them."""


def cutting(name: str) -> Any:
    """What cuts text into words before merges are applied."""
    from tokenizers import Regex, pre_tokenizers

    if name == "smollm":  # every digit for itself, then GPT-2's way
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if (pattern := PATTERNS[name]) is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
