"""`ragen show`: episodes of a run as text, board by board; as pictures on request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ragen.config.schema import EnvTag
from ragen.config.strict import build_dataclass
from ragen.errors import RagenError
from ragen.files import read_yaml, value_at
from ragen.text import printable
from ragen.tracking.episodes import config_of, episode_files, episode_name, read_episodes
from ragen.types import Episode


def show_episodes(
    path: Path,
    *,
    policy: str | None,
    rollout: str | None,
    status: str | None,
    seed: int | None,
    member: int | None,
    limit: int,
    png: Path | None,
) -> None:
    """Print the first episodes that match; with `png`, draw a picture per turn into that folder, too."""
    is_empty = True
    found = select(path, policy=policy, rollout=rollout, status=status, seed=seed, member=member)
    for name, episode in islice(found, limit):
        is_empty = False
        print(to_text(episode, name))
        for picture in write_pictures(episode, path, png, name) if png else ():
            print(f"wrote {picture}")
    if is_empty:
        print("No episode matches.")


def select(
    path: Path,
    *,
    policy: str | None = None,
    rollout: str | None = None,
    status: str | None = None,
    seed: int | None = None,
    member: int | None = None,
) -> Iterator[tuple[str, Episode]]:
    """File name and episode of everything that matches."""
    wanted = {"status": status, "seed": seed, "member": member}
    for file in episode_files(path):
        name = episode_name(file)
        if (policy and not name.startswith(policy)) or (rollout and name != rollout):
            continue
        for episode in read_episodes(file):
            if all(value is None or getattr(episode, key) == value for key, value in wanted.items()):
                yield name, episode


PICTURE_SIZE = 512
"""Pixels up to which the longer side of a picture is enlarged: environments draw cells of 16."""


def to_text(episode: Episode, name: str) -> str:
    """An episode as a person reads it."""
    tokens = sum(len(turn.response_ids) for turn in episode.turns)
    lines = [
        "=" * 100,
        f"{name}  {episode.tag}  seed {episode.seed}  member {episode.member}  ->  {episode.status.value}, "
        f"reward {episode.reward:g}, penalty {episode.penalty:g}, {episode.num_actions} actions, {tokens} tokens",
        "-" * 100,
        f"[system]\n{episode.system}",
    ]
    for number, turn in enumerate(episode.turns, start=1):
        executed = ", ".join(turn.executed) or "nothing"
        lines += [
            f"[{turn.role}]\n{turn.user}",
            f"[assistant]\n{turn.text}",
            f"  turn {number}: executed {executed}; reward {turn.reward:g}; ended by {turn.stop_reason}"
            + ("" if turn.is_parsed else "; NOT PARSED")
            + (f"; dropped actions: {turn.num_dropped_actions}" if turn.num_dropped_actions else "")
            + (f"; the call failed: {turn.tool_problem}" if turn.tool_problem else ""),
        ]
    lines.append(f"[end]\n{episode.final_observation}")
    if episode.error:
        lines.append(f"[error] {episode.error}")
    return printable("\n".join(lines))


def write_pictures(episode: Episode, run: Path, folder: Path, name: str) -> Iterator[Path]:
    """Play the episode again and draw the board before the first and after each turn as PNG; yields the files."""
    from ragen.env import Env, make_env
    from ragen.env.png import encode_png

    config_file = config_of(run)
    if not config_file.exists():
        raise RagenError(f"Pictures need {config_file}: the options of the environment are read from it.")
    table = value_at(read_yaml(config_file), "custom_envs", config_file)
    row = table.get(episode.tag) if isinstance(table, dict) else None
    spec = build_dataclass(EnvTag, row, f"{config_file}: custom_envs.{episode.tag}")
    env = make_env(spec.env_type, spec.env_config)
    env.reset(episode.seed, episode.member)
    names = env.actions if isinstance(env, Env) else {}
    ids: dict[str, Any] = {action_name.lower(): action for action, action_name in names.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for number, executed in enumerate([[], *(turn.executed for turn in episode.turns)]):
        for action in executed:
            env.step(ids.get(action.lower(), action))
        picture = env.render_rgb()
        if picture is None:
            break
        path = folder / f"{name}_{episode.tag}_{episode.seed}_{episode.member}_turn{number}.png"
        times = max(1, PICTURE_SIZE // max(picture.shape[:2]))
        path.write_bytes(encode_png(picture.repeat(times, axis=0).repeat(times, axis=1)))
        yield path
    env.close()
