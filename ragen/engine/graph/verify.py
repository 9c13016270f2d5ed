"""Forward passes that check drafts: several tokens of each session at once, captured like those of decode.py.

A pass takes the last token of a session and the drafts behind it, draws a token after each of them with the noise of
its position, and takes the drawn ones as far as the drafts were right. Keys and values of wrong drafts stay in the
cache, behind what counts, until the next tokens take their positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.drafts import MOST_ROWS, NONE
from ragen.engine.graph.decode import Runner, rung
from ragen.engine.graph.fused import Layer
from ragen.engine.sampling import CHUNK
from ragen.modeling.kernels.norm import rms_norm_rows
from ragen.modeling.kernels.sampling import draw
from ragen.modeling.kernels.verify import VerifyAttention, accept

MOST_SESSIONS = 32


def columns(num_sessions: int) -> int:
    """Tokens of each session that a pass takes: the last one and up to 7 drafts, or 3."""
    return 8 if 8 * num_sessions <= MOST_ROWS else 4


class VerifyingRunner(Runner):
    """A runner that can check drafts of a few sessions, too."""

    def __init__(self, model: Any, *, has_drafts: bool, **options: Any) -> None:
        """`has_drafts` False: it will check none, and has no room for their logits. `options` are those of `Runner`."""
        super().__init__(model, **options)
        self.verify_ladder = [size for size in self.ladder if size <= MOST_SESSIONS]
        self._attentions: dict[int, VerifyAttention] = {}
        """By sessions of a pass; a captured graph reads their buffers, and does not keep them."""
        rows = max(columns(size) * size for size in self.verify_ladder) if has_drafts else 0
        is_enough = len(self.logits) >= rows
        self._verify_logits = self.logits if is_enough else self.logits.new_empty(rows, self.logits.shape[1])

    def num_drafts(self, num_sessions: int) -> int:
        """Drafts of each session that can be checked when there are so many sessions; 0 if there are too many."""
        size = rung(self.verify_ladder, num_sessions)
        return columns(size) - 1 if size else 0

    def verify(self, slots: np.ndarray, tokens: np.ndarray, drafts: np.ndarray, positions: np.ndarray) -> Tensor:
        """Draw a token after the last of each slot, and after each of its drafts [slots, num_drafts].

        `tokens` are the last ones and `positions` theirs; the state of the sessions must say the same. Returns
        [4, rows] int32, num_drafts + 1 rows for each slot: tokens, the bits of their log-probs and entropies, and
        whether they are taken. The first three are arbitrary where there was no draft.
        """
        size = rung(self.verify_ladder, len(slots))
        assert size is not None, f"{len(slots)} sessions are too many to check drafts of"
        width, count = columns(size), len(slots)
        key = ("verify", size, width)
        if key not in self._passes:
            attention = VerifyAttention(self.attention, sessions=size, width=width)
            self._attentions[size] = attention
            self._passes[key] = self._captured(
                self._send(_inputs(np.full(0, 0), np.full(0, 0), np.zeros((0, width - 1)), np.full(0, 0), size)),
                torch.zeros(4, size * width, dtype=torch.int32, device=self.device),
                lambda inputs, out: self._verify(inputs, out, attention),
            )
        chosen = self._passes[key]
        chosen.inputs.copy_(self._send(_inputs(slots, tokens, drafts, positions, size)), non_blocking=True)
        chosen.run()
        return chosen.out[:, : count * width]

    def _verify(self, inputs: Tensor, out: Tensor, attention: VerifyAttention) -> None:
        rows, decoder = out.shape[1], self.decoder
        ids, slots, blocks = inputs.split([rows, rows, len(inputs) - 2 * rows])

        def attend(index: int, layer: Layer, qkv: Tensor) -> Tensor:
            return attention(index, qkv, layer.head_norms, blocks, self.state)

        x = self._layers(torch.nn.functional.embedding(ids, decoder.embedding), attend)
        logits = self._verify_logits[:rows]
        torch.mm(rms_norm_rows(x, decoder.norm, decoder.eps), decoder.head.t(), out=logits)
        draw(logits, slots, self.state, out, chunk=CHUNK, advance=False, width=attention.width)
        accept(ids, slots, self.state, out, width=attention.width)


def _inputs(slots: np.ndarray, tokens: np.ndarray, drafts: np.ndarray, positions: np.ndarray, size: int) -> np.ndarray:
    """What a pass for `size` sessions reads: token ids and slots by row, and slot, position and tokens by session."""
    count, width = len(slots), drafts.shape[1] + 1
    is_draft = drafts != NONE
    ids, rows = np.zeros((size, width), dtype=np.int64), np.full((size, width), -1, dtype=np.int64)
    ids[:count, 0], ids[:count, 1:] = tokens, np.where(is_draft, drafts, 0)
    rows[:count, 0], rows[:count, 1:] = slots, np.where(is_draft, slots[:, None], -1)
    blocks = np.zeros((size, 3), dtype=np.int64)
    blocks[:count, 0], blocks[:count, 1], blocks[:count, 2] = slots, positions, 1 + is_draft.sum(axis=1)
    return np.concatenate([ids.ravel(), rows.ravel(), blocks.ravel()])
