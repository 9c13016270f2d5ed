"""Episodes for the page: lists by what they were, the members of a group, one of them turn by turn."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragen.errors import RagenError
from ragen.tracking.episodes import episode_from_json
from ragen.types import Episode, Turn
from ragen.view.reading.boards import frame_of
from ragen.view.reading.index import HEADER_COLUMNS, Index, Line, read_line
from ragen.view.reading.settings import read_settings
from ragen.view.reading.tokens import Decoder, decoder_of

PAGE_SIZE = 100
SEARCH_S = 2.0
"""Seconds that a search for text may take; the answer says where it stopped."""
HEADERS = ", ".join(f'episodes."{name}"' for name in ("file", "index", *HEADER_COLUMNS))
SELECT = f"select {HEADERS}, step, rollout, kind, offset, length from episodes join files on name = file"
SORTS = {name: f'episodes."{name}"' for name in HEADER_COLUMNS} | {"step": "step", "file": "rollout, step"}
TURN_FIELDS = (
    *("user", "role", "tool_result", "tool_problem", "observation", "thought", "text", "actions", "executed"),
    *("reward", "penalty", "info", "stop_reason", "is_parsed", "num_dropped_actions", "num_dropped_turns"),
)
BOUNDS = {"min": "reward >= ?", "max": "reward <= ?"}
CONDITIONS = {name: f"{name} = ?" for name in ("file", "tag", "status", "rollout", "seed")} | BOUNDS
CONDITIONS["group"] = 'episodes."group" = ?'


def list_episodes(index: Index, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of headers that fit the query, and the files there are."""
    progress = index.update()
    where, values = conditions(query)
    order = ordering(query.get("sort", ""))
    page = _page(query.get("page", ""))
    files = index.select("select name, step, rollout, count from files order by rollout, step, name")
    tags = [row["tag"] for row in index.select("select distinct tag from episodes where tag is not null order by tag")]
    answer: dict[str, Any] = {"files": files, "tags": tags, "indexing": progress, "page": page, "page_size": PAGE_SIZE}
    if text := query.get("text", ""):
        return answer | search(index, f"{SELECT}{where}{order}", values, text, page)
    total = index.select(f"select count(*) as total from episodes join files on name = file{where}", values)[0]["total"]
    rows = index.select(f"{SELECT}{where}{order} limit ? offset ?", [*values, PAGE_SIZE, page * PAGE_SIZE])
    return answer | {"total": total, "is_complete": True, "rows": [to_header(row) for row in rows]}


def conditions(query: Mapping[str, str]) -> tuple[str, list[Any]]:
    """The query as SQL with its values apart from it: {"tag": "A"} -> (" where tag = ?", ["A"])"""
    given = {name: text for name in CONDITIONS if (text := query.get(name, ""))}
    values = [_number(name, text) if name in BOUNDS else text for name, text in given.items()]
    return (f" where {' and '.join(CONDITIONS[name] for name in given)}" if given else ""), values


def ordering(sort: str) -> str:
    """reward -> smallest first, -reward -> largest first; without one in the order of the steps."""
    natural = 'rollout, step, file, episodes."index"'
    if not sort:
        return f" order by {natural}"
    column = SORTS.get(sort.removeprefix("-"))
    if column is None:
        raise RagenError(f"sort={sort[:40]!r}: choose from {', '.join(SORTS)}, with a minus for the largest first.")
    down = " desc" if sort.startswith("-") else ""
    return f" order by {', '.join(part + down for part in column.split(', '))}, {natural}"


def search(index: Index, sql: str, values: list[Any], text: str, page: int) -> dict[str, Any]:
    """Headers of the episodes whose messages hold a text, whatever its case, as far as the time reaches."""
    found, is_complete, until = [], True, time.monotonic() + SEARCH_S
    paths, wanted = index.files(), text.casefold()
    for row in index.select(sql, values):
        if time.monotonic() > until:
            is_complete = False
            break
        if row["file"] in paths and any(wanted in message.casefold() for message in messages(_line(row, paths))):
            found.append(row)
    rows = found[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
    return {"total": len(found), "is_complete": is_complete, "rows": [to_header(row) for row in rows]}


def _line(row: Mapping[str, Any], paths: Mapping[str, Any]) -> Line:
    return Line(
        path=paths[row["file"]], kind=row["kind"], index=row["index"], offset=row["offset"], length=row["length"]
    )


def messages(line: Line) -> Iterator[str]:
    """The texts of an episode; none where it cannot be read."""
    with contextlib.suppress(RagenError, ValueError, KeyError, TypeError, RecursionError):
        record = json.loads(read_line(line))
        yield from (str(message["content"]) for message in record["messages"])


def to_header(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table in the form of the API."""
    names = ("file", "index", "step", "rollout", *HEADER_COLUMNS)
    success = row["success"]
    return {name: row[name] for name in names} | {"success": None if success is None else bool(success)}


def group_of(index: Index, file: str, group: int) -> dict[str, Any]:
    """The members of a group in one file, and what they earned with their penalties."""
    index.line(file, 0)
    rows = index.select(f'{SELECT} where file = ? and episodes."group" = ? order by member', [file, group])
    members = [to_header(row) for row in rows]
    return {"members": members, "rewards": [(row["reward"] or 0.0) + (row["penalty"] or 0.0) for row in members]}


def read_episode(index: Index, file: str, number: int, *, has_prompts: bool = False) -> dict[str, Any]:
    """One episode with everything the page shows of it; with the tokens of its prompts on request."""
    line = index.line(file, number)
    try:
        record = json.loads(read_line(line))
        episode = episode_from_json(record)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RagenError(f"Line {number + 1} of {file} is not an episode ({type(error).__name__}).") from error
    row = index.select(f'{SELECT} where file = ? and episodes."index" = ?', [file, number])[0]
    settings = read_settings(index.run)
    decoder = decoder_of(settings, episode.env_type)
    return to_header(row) | {
        "env_type": episode.env_type,
        "level": episode.level,
        "error": episode.error,
        "system": episode.system,
        "final_observation": episode.final_observation,
        "final_frame": frame_of(episode, episode.final_observation, settings),
        "turns": [
            to_turn(turn, episode, settings, decoder)
            | ({"prompt_tokens": to_prompt_tokens(turn, decoder)} if has_prompts else {})
            for turn in episode.turns
        ],
        "tokens_missing": decoder.reason,
        "trained": is_trained(row["rollout"], record["turns"]),
    }


def is_trained(rollout: str, turns: Sequence[Mapping[str, Any]]) -> str:
    """Whether anything of an episode was trained on: yes, no, unknown to files of earlier versions, or never at all."""
    if rollout != "train":
        return "never"
    if any("advantages" not in turn for turn in turns):
        return "unknown"
    return "yes" if any(turn["advantages"] for turn in turns) else "no"


def to_turn(turn: Turn, episode: Episode, settings: Mapping[str, Any], decoder: Decoder) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in TURN_FIELDS} | {
        "frame": frame_of(episode, turn.observation, settings),
        "num_prompt_tokens": len(turn.prompt_ids),
        "advantage": [min(turn.advantages), max(turn.advantages)] if turn.advantages else None,
        "tokens": to_tokens(turn, decoder),
    }


def to_tokens(turn: Turn, decoder: Decoder) -> list[dict[str, Any]] | None:
    """The reply token by token; None where its texts are not known, as `tokens_missing` explains."""
    texts = decoder.texts(turn.response_ids)
    if texts is None:
        return None
    logprobs = turn.logprobs if len(turn.logprobs) == len(texts) else [None] * len(texts)
    entropies = turn.entropies if turn.has_entropies else [None] * len(texts)
    shared = turn.advantages * len(texts) if len(turn.advantages) == 1 else turn.advantages
    advantages = shared if len(shared) == len(texts) else [None] * len(texts)
    columns = zip(texts, turn.response_ids, logprobs, entropies, advantages, strict=True)
    return [
        {"text": text, "id": token, "logprob": logprob, "entropy": entropy, "mask": 1, "advantage": advantage}
        for text, token, logprob, entropy, advantage in columns
    ]


def to_prompt_tokens(turn: Turn, decoder: Decoder) -> list[dict[str, Any]] | None:
    """What the model was given before the reply, token by token: nothing of it is trained on."""
    texts = decoder.texts(turn.prompt_ids)
    if texts is None:
        return None
    return [{"text": text, "id": token, "mask": 0} for text, token in zip(texts, turn.prompt_ids, strict=True)]


def _page(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise RagenError(f"{name}={text[:40]!r}: expected a number.") from error
