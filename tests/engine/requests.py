"""Requests of the engines' tests, and the plain passes their replies are compared with."""

from __future__ import annotations

import numpy as np
import torch

from ragen.engine.base import Engine, Reply, Request, SamplingParams
from ragen.engine.sessions import Session
from tests.engine.families import VOCAB


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, VOCAB, length).tolist()


def run(engine: Engine, requests: list[Request]):
    """Submit all, step until all are done; completions by session."""
    for request in requests:
        engine.submit(request)
    done = {}
    while len(done) < len(requests):
        done |= {completion.session: completion for completion in engine.step()}
    return done


def request(session: int, ids: list[int], seed: int = 0, **params) -> Request:
    params = {"max_tokens": 8} | params
    return Request(session=session, prompt_ids=ids, params=SamplingParams(**params), seed=seed)


def forward_logprobs(model, ids: list[int], start: int, temperature: float = 1.0) -> list[float]:
    """Log-probs of ids[start:] by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits[:-1], dim=-1)
    return [logprobs[i - 1, ids[i]].item() for i in range(start, len(ids))]


def forward_entropies(model, ids: list[int], start: int, temperature: float = 1.0) -> list[float]:
    """Entropies of the distributions behind ids[start:] by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([ids], device=model.device)).logits[0, start - 1 : -1].double() / temperature
    return torch.distributions.Categorical(logits=logits).entropy().tolist()


class Letters:
    """A tokenizer whose token i is a letter or two, enough to spread a stop string over tokens."""

    def decode(self, ids: list[int]) -> str:
        return "".join(self.text(i) for i in ids)

    def batch_decode(self, batch: list[list[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def text(self, i: int) -> str:
        letter = chr(ord("a") + i % 26)
        return letter if i < 52 else letter + letter.upper()

    def __len__(self) -> int:
        return VOCAB


def open_session(slot: int, ids: list[int], *, num_cached: int = 0, **params) -> Session:
    """A session whose reply to a prompt has just begun; its first tokens are cached."""
    return Session(name=slot, slot=slot, cached=ids[:num_cached], reply=Reply(request(slot, ids, seed=slot, **params)))
