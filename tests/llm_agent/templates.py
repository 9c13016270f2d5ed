"""Small tokenizers with chat templates in the styles of the families people train."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "You are a helpful assistant. Actions: Up, Down, Break. You have 6 actions, at most 2 per answer, separated by ||.",
    "Turn 1 Turn 2 Turn 3 State: count 0 count 1 level 7 Reward: 1 Reward: 0 Your last answer had no usable action.",
    "Actions left: 6. Reply with <think>your thoughts</think><answer>your actions</answer> in at most 40 tokens.",
    "system user assistant model be brief look, then go </think><answer>Up || Left</answer> Earlier turns: reward",
]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A chat template and the special tokens around it."""

    template: str
    special: tuple[str, ...]
    eos: str
    added: tuple[str, ...] = ()
    """Single tokens that are not special."""
    swallowing: tuple[str, ...] = ()
    """Special tokens that take the white space behind them along."""
    bos: str | None = None
    has_metaspace: bool = False
    """Sentencepiece style: spaces become ▁ and one is put before every text."""


_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ CONTENT }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WITHOUT_REASONING = "(m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' else m.content)"
_LLAMA3 = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = 'long ago' %}{% endif %}"
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday: {{ date_string }}\n\n{{ system }}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_LLAMA3_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")

FAMILIES = {
    "qwen2.5": Family(template=_CHATML.replace("CONTENT", "m.content"), special=_CHATML_TOKENS, eos="<|im_end|>"),
    "llama3": Family(template=_LLAMA3, special=_LLAMA3_TOKENS, bos="<|begin_of_text|>", eos="<|eot_id|>"),
    # As the base model is configured: the end of a turn has no role among the tokenizer's special tokens.
    "llama3_base": Family(template=_LLAMA3, special=_LLAMA3_TOKENS, bos="<|begin_of_text|>", eos="<|end_of_text|>"),
    "smollm2": Family(
        template="{% if messages[0].role != 'system' %}<|im_start|>system\nYou are small.<|im_end|>\n{% endif %}"
        + _CHATML.replace("CONTENT", "m.content"),
        special=_CHATML_TOKENS,
        bos="<|im_start|>",
        eos="<|im_end|>",
    ),
    "qwen3": Family(
        template=_CHATML.replace("CONTENT", _WITHOUT_REASONING),
        special=_CHATML_TOKENS,
        added=("<think>", "</think>"),
        eos="<|im_end|>",
    ),
    "deepseek": Family(
        template="{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
        "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}"
        "{% else %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}",
        special=("<｜begin｜>", "<｜end｜>"),
        added=("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "\n\n"),
        bos="<｜begin｜>",
        eos="<｜end｜>",
    ),
    # Opens the think block like DeepSeek's, but shows earlier replies as they were.
    "opens_think": Family(
        template=_CHATML.replace("CONTENT", "m.content").replace("assistant\n{%", "assistant\n<think>\n{%"),
        special=_CHATML_TOKENS,
        eos="<|im_end|>",
    ),
    "gemma": Family(
        template="{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        special=("<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        eos="<eos>",
    ),
    # Has no system role of its own, but puts such a message before the first question.
    "gemma3": Family(
        template="{{ bos_token }}{% if messages[0].role == 'system' %}{% set intro = messages[0].content + '\n\n' %}"
        "{% set messages = messages[1:] %}{% else %}{% set intro = '' %}{% endif %}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ intro if loop.first else '' }}"
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        special=("<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        eos="<end_of_turn>",
    ),
    # Its markers swallow the white space behind them, and a finished conversation ends with eos.
    "phi3": Family(
        template="{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
        special=("<unk>", "<s>", "<|endoftext|>"),
        swallowing=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        bos="<s>",
        eos="<|endoftext|>",
        has_metaspace=True,
    ),
    # Shows the system text before the last question, wherever that is.
    "mistral": Family(
        template="{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
        "{% set messages = messages[1:] %}{% endif %}{{ bos_token }}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if m.role == 'user' %}[INST] {% if loop.last and system is defined %}{{ system + '\n\n' }}{% endif %}"
        "{{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
        special=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        bos="<s>",
        eos="</s>",
        has_metaspace=True,
    ),
    "llama2": Family(
        template="{% if messages[0].role == 'system' %}"
        "{% set intro = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
        "{% set messages = messages[1:] %}{% else %}{% set intro = '' %}{% endif %}{% for m in messages %}"
        "{% if m.role == 'user' %}"
        "{{ bos_token }}[INST] {{ intro if loop.first else '' }}{{ m.content.strip() }} [/INST]"
        "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        special=("<unk>", "<s>", "</s>"),
        bos="<s>",
        eos="</s>",
        has_metaspace=True,
    ),
    # Shows tools in the system message and results within a user message, as Qwen 2.5's and Hermes' templates do.
    "qwen2.5_tools": Family(
        template="<|im_start|>system\n{{ messages[0].content }}{% if tools %}{{ '\n\nFunctions:' }}"
        "{% for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}{{ '\nCall them like this: <tool_call>\n' }}"
        '{"name": ..., "arguments": {...}}\n</tool_call>{% endif %}<|im_end|>\n'
        "{% for m in messages[1:] %}{% if m.role == 'tool' %}{% if loop.previtem.role != 'tool' %}<|im_start|>user"
        "{% endif %}{{ '\n<tool_response>\n' }}{{ m.content }}{{ '\n</tool_response>' }}"
        "{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        special=_CHATML_TOKENS,
        added=("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        eos="<|im_end|>",
    ),
    "dated": Family(
        template="{{ strftime_now('%d %B %Y') }}" + _CHATML.replace("CONTENT", "m.content"),
        special=_CHATML_TOKENS,
        eos="<|im_end|>",
    ),
}  # fmt: skip

APPENDABLE = [name for name in FAMILIES if name not in ("qwen3", "deepseek", "dated")]
"""Families whose template shows earlier replies as they were written."""

CANNOT_GROW = {
    "numbered": _CHATML.replace("{{ m.role }}", "{{ loop.index }} of {{ messages | length }} {{ m.role }}"),
    "numbered_without_reasoning": _CHATML.replace("CONTENT", _WITHOUT_REASONING).replace(
        "{{ m.role }}", "{{ messages | length }} {{ m.role }}"
    ),
    "system_moves": (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{% if loop.last %}{{ messages[0].content }}\n\n{% endif %}{{ m.content }} [/INST]"
        "{% elif m.role == 'assistant' %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    ),
    "last_turn_only": "{{ messages[0].content }}\n{{ messages[-1].content }}\n<|im_start|>",
}


def make_family(template: str) -> Family:
    return Family(template=template.replace("CONTENT", "m.content"), special=_CHATML_TOKENS, eos="<|im_end|>")


@cache
def make_tokenizer(family: Family) -> Any:
    """A tokenizer of about 500 tokens trained on a few lines of prompts; any text can be encoded."""
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    if family.has_metaspace:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        # Single letters only: sentencepiece has no word borders, and a merge could span the end of a prompt.
        trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[*family.special, *bytes_], show_progress=False)
        lines = [letter for line in LINES for letter in line]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=520, special_tokens=list(family.special), initial_alphabet=alphabet, show_progress=False
        )
        lines = LINES * 2
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, rstrip=True) for text in family.swallowing])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in family.added])
    roles = {"bos_token": family.bos, "eos_token": family.eos}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=family.template,
        **{role: token for role, token in roles.items() if token},
    )


def family_tokenizer(name: str) -> Any:
    return make_tokenizer(FAMILIES[name])
