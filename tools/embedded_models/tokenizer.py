"""The tokenizer of the embedded models: bytes, and one token for every fixed phrase of the prompts.

A board cell, a digit and an arm's name stay one token each; everything around them, which never changes, is
swallowed by a few long tokens. A turn then costs about 30 tokens, and any other text is still representable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

PAD, END, START = "<|endoftext|>", "<|im_end|>", "<|im_start|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FIXED = [
    f"{START}system\n",
    f"\n{START}user\n",
    f"\n{START}assistant\n",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "</think><answer>",
    " || ",
    ", ",
    ". ",
    "√",
    "######\n#",
    "#\n#",
    "#\n######",
]
BOARD_LINE = re.compile(r"\S{2,8}")
"""A line without spaces is a row of a board; its cells stay single."""


def phrases(texts: Iterable[str], names: Iterable[str]) -> list[str]:
    """The fixed phrases of prompts: lines, cut at digits, coordinates and names.

    ["Turn 1\nState:\n#_#\nGo to Mill."], names ["Mill"] -> ["Turn ", "\nState:\n", "\nGo to ", "Mill", "."]
    """
    # By length, then by letter: a set has another order in every process.
    names = sorted(set(names), key=lambda name: (-len(name), name))
    cut = re.compile("|".join([r"\d", *map(re.escape, names)]))
    found = dict.fromkeys(names)
    for text in texts:
        piece = ""
        for line in text.split("\n"):
            if BOARD_LINE.fullmatch(line) and not line.endswith(":"):
                found |= dict.fromkeys(cut.split(piece))
                piece = "\n"
            else:
                piece += line + "\n"
        found |= dict.fromkeys(cut.split(piece.removesuffix("\n")))
    return [phrase for phrase in found if len(phrase) > 1]


def build_tokenizer(texts: Iterable[str], names: Iterable[str]) -> Any:
    """A byte-level tokenizer with the phrases of `texts` as tokens of their own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, END])
    plain = dict.fromkeys([*FIXED, *phrases(texts, names)])
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
