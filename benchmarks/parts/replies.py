"""Replies as long as those of real runs, from weights that know no end.

Random weights never write a stop token, so that every reply is as long as allowed: nothing shows of the tail of a real
rollout, in which most replies are over early and a few hold everybody up. Here each reply gets a length drawn from
recorded ones, and an answer of drawn moves for a text, so that the environments have something to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from ragen.engine.base import Completion, Engine, Request
from ragen.llm_agent.agent_proxy import AgentProxy
from ragen.seeding import fixed_hash
from ragen.tracking.episodes import episode_files, read_episodes

RECORDED = {20: 84, 40: 296, 60: 90, 80: 38, 120: 31, 200: 32, 300: 6, 400: 57}
"""Replies of at most so many tokens, and more than the number before: 8 x 16 Sokoban episodes of a 0.5B instruct model,
five turns, response_length 400. Those of the last row ran into that limit."""
MOVES = ("Up", "Down", "Left", "Right")


def recorded_lengths(table: dict[int, int] = RECORDED) -> list[int]:
    """A length for each reply of the table, evenly spread over its row; the last row stands for its limit alone.

    {4: 2, 8: 1, 9: 3} -> 2, 4, 8, 9, 9, 9
    """
    limit = max(table)
    lengths = []
    for low, high in pairwise([0, *table]):
        spread = [low + -(-(high - low) * number // table[high]) for number in range(1, table[high] + 1)]
        lengths += [high] * table[high] if high == limit else spread
    return lengths


def lengths_of_run(run: Path) -> list[int]:
    """Those of all replies in the episodes that a run directory holds."""
    episodes = [episode for file in episode_files(run) for episode in read_episodes(file)]
    return [len(turn.response_ids) for episode in episodes for turn in episode.turns if turn.response_ids]


def drawn_length(lengths: Sequence[int], seed: int) -> int:
    """The length of the reply with that seed: the same in every run."""
    return Random(seed).choice(lengths)


def reply_lengths(run: Path | None) -> list[int]:
    """What `--lengths-from` names, or the recorded table."""
    return recorded_lengths() if run is None else lengths_of_run(run)


def end_replies(engine: Engine, lengths: Sequence[int]) -> None:
    """From now on each reply of the engine ends after as many tokens as its seed draws, at most as many as asked for.

    Stop tokens mean nothing to random weights; stop strings are looked for all the same, as in a real run.
    """
    submit = engine.submit

    def submit_shortened(request: Request) -> None:
        most = min(request.params.max_tokens, drawn_length(lengths, request.seed))
        submit(replace(request, params=replace(request.params, max_tokens=most, stop_token_ids=())))

    engine.submit = submit_shortened  # type: ignore[method-assign]


def answer_with_moves(proxy: AgentProxy) -> None:
    """From now on replies read as well-formed answers of one to three drawn moves, whatever their tokens are."""

    def text(completion: Completion, *, has_tools: bool) -> str:
        return "<think>so be it</think><answer>" + " || ".join(drawn_moves(completion.token_ids)) + "</answer>"

    proxy._text = text  # type: ignore[method-assign]


def drawn_moves(token_ids: Sequence[int]) -> list[str]:
    """One to three moves that follow from the tokens."""
    rng = Random(fixed_hash("moves", *token_ids))
    return [rng.choice(MOVES) for _ in range(rng.randint(1, 3))]
