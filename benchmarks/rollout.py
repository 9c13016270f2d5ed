"""Sampled tokens per second of multi-turn rollouts: ours beside transformers.generate and TRL, in one run.

    python benchmarks/rollout.py --size 0.5M
"""

from __future__ import annotations

import os

# Before torch is imported: threads that wait must sleep, or they take the cores from those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

from ragen.engine.base import Completion, Request, StopReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A Qwen2 shape and how many episodes are played with it."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    mlp_size: int
    vocab_size: int | None
    """None: as many as the tokenizer has."""
    num_episodes: int


SIZES = {
    "0.5M": Size(
        hidden_size=96, num_layers=4, num_heads=3, num_kv_heads=3, mlp_size=256, vocab_size=None, num_episodes=64
    ),
    "50M": Size(
        hidden_size=512, num_layers=8, num_heads=8, num_kv_heads=8, mlp_size=1408, vocab_size=32000, num_episodes=16
    ),
    "qwen2.5-0.5B": Size(
        hidden_size=896, num_layers=24, num_heads=14, num_kv_heads=2, mlp_size=4864, vocab_size=151936, num_episodes=128
    ),
    "qwen2.5-3B": Size(
        hidden_size=2048,
        num_layers=36,
        num_heads=16,
        num_kv_heads=2,
        mlp_size=11008,
        vocab_size=151936,
        num_episodes=128,
    ),
}

class GenerateEngine:
    """Replies by `transformers.generate`: all waiting requests in one left-padded batch, whole contexts every turn."""

    def __init__(self, model: Any, pad_id: int) -> None:
        self.model, self.pad_id = model, pad_id
        self.waiting: list[Request] = []
        self.num_prefilled = 0

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        requests, self.waiting = self.waiting, []
        width = max(len(request.prompt_ids) for request in requests)
        ids = torch.full((len(requests), width), self.pad_id)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            self.num_prefilled += len(request.prompt_ids)
            ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        num_tokens = requests[0].params.max_tokens
        config = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=num_tokens, pad_token_id=self.pad_id
        )
        output = self.model.generate(
            ids.to(self.model.device), attention_mask=mask.to(self.model.device), generation_config=config
        )
        replies = output[:, width:].tolist()
        return [
            Completion(session=request.session, token_ids=reply, stop_reason=StopReason.LENGTH)
            for request, reply in zip(requests, replies, strict=True)
        ]

    def release(self, session: int) -> None:
        """Nothing is kept between turns."""

    def close(self) -> None:
        self.waiting.clear()


def build_model(size: Size, tokenizer: Any, device: str) -> Any:
    """Random weights, float32 on a CPU and bfloat16 on a GPU."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=size.vocab_size or len(tokenizer),
        hidden_size=size.hidden_size,
        intermediate_size=size.mlp_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=size.num_kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
