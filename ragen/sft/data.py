"""Demonstrations for supervised training: made on every core, kept as parquet files or in memory.

A file has one row per reply: the conversation before it, the reply, and the token ids of both as the model will see
and sample them. Its metadata name everything it was made from, so that a later run knows whether it may use it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.errors import ConfigError, needing_extra
from ragen.llm_agent.build import build_chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.policies import has_random, play_policy
from ragen.sft.config import SftConfig
from ragen.tracking.console import progress
from ragen.tracking.machine import usable_cores
from ragen.trainer.starting.changes import data_facts
from ragen.types import Episode, Sample, Turn

CHUNK = 32
"""Levels that are demonstrated together, and written together."""
LEVELS_PER_PROCESS = 2000
"""What a process makes in the seconds that it takes to start; fewer are not worth one."""
METADATA_KEY = b"ragen"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive levels of one tag."""

    tag: str
    first_seed: int
    num_levels: int
    noise_seed: int = 0
    """Another one draws other random replies on the same levels."""


def chunks(tags: Sequence[str], first_seed: int, num_levels: int) -> list[Chunk]:
    return [
        Chunk(tag=tag, first_seed=first_seed + start, num_levels=min(CHUNK, num_levels - start))
        for tag in tags
        for start in range(0, num_levels, CHUNK)
    ]


def levels_of(config: Config, tag: str, seeds: Iterable[int]) -> Iterator[str]:
    """The hashes of the levels of a tag; those that are left out of demonstrations, too."""
    seats = EnvConfigsConfig(tags=(tag,), n_groups=(1,))
    env_set = EnvSetConfig(env_groups=1, group_size=1, env_configs=seats)
    with closing(EsManager(env_set, config.custom_envs)) as environments:
        [seat] = environments.seats
        for seed in seeds:
            seat.reset(seed)
            yield seat.level


class Demonstrator:
    """Plays the teacher through the prompts that reinforcement learning will show."""

    def __init__(self, config: Config, tokenizer: Any, *, noise: float, max_plan: float = math.inf) -> None:
        self.config, self.noise, self.max_plan = config, noise, max_plan
        self.chat = build_chat(config, tokenizer)
        self.environments: dict[tuple[str, int], EsManager] = {}

    def __call__(self, chunk: Chunk) -> list[Episode]:
        """The episodes of a chunk; levels without a solution of at most `max_plan` actions are left out."""
        size = chunk.tag, chunk.num_levels
        if size not in self.environments:
            seats = EnvConfigsConfig(tags=(chunk.tag,), n_groups=(chunk.num_levels,))
            env_set = EnvSetConfig(env_groups=chunk.num_levels, group_size=1, env_configs=seats)
            self.environments[size] = EsManager(env_set, self.config.custom_envs)
            if self.noise and not has_random(self.environments[size], chunk.tag):
                raise ConfigError(
                    f"sft.noise={self.noise:g}: {chunk.tag} offers no random answer (sample_text). Set sft.noise=0."
                )
        environments = self.environments[size]
        is_wanted = []
        for seat in environments.reset(levels_from(chunk.first_seed, chunk.num_levels)):
            plan = None if seat.error else seat.solve()
            is_wanted.append(plan is not None and len(plan) <= self.max_plan)
        episodes = play_policy(
            self.config,
            environments,
            noise=self.noise,
            base_seed=chunk.first_seed,
            seed=chunk.noise_seed,
            chat=self.chat,
        )
        return [episode for episode, wanted in zip(episodes, is_wanted, strict=True) if wanted and episode.turns]


_demonstrator: Demonstrator | None = None  # of a worker process


def _start_worker(config: Config, model: Path | str, noise: float, max_plan: int) -> None:
    from ragen.modeling.load import load_tokenizer

    global _demonstrator
    _demonstrator = Demonstrator(config, load_tokenizer(model), noise=noise, max_plan=max_plan)


def _demonstrate(chunk: Chunk) -> list[Episode]:
    assert _demonstrator is not None, "the worker was not started"
    return _demonstrator(chunk)


def demonstrate(
    config: Config, sft: SftConfig, todo: Sequence[Chunk], *, model: Path | str, tokenizer: Any
) -> Iterator[list[Episode]]:
    """The episodes of all chunks in order, as they are made; what they are does not depend on the processes."""
    cores = usable_cores()
    num_processes = min(sft.num_processes or cores, cores, math.ceil(len(todo) * CHUNK / LEVELS_PER_PROCESS))
    if num_processes <= 1:
        yield from map(Demonstrator(config, tokenizer, noise=sft.noise, max_plan=sft.max_plan), todo)
        return
    arguments = (config, model, sft.noise, sft.max_plan)
    # A fresh interpreter each: forking a process that has loaded torch may hang.
    context = get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, initializer=_start_worker, initargs=arguments) as pool:
        yield from pool.map(_demonstrate, todo)


def load_data(
    config: Config, sft: SftConfig, *, model: Path | str, tokenizer: Any
) -> tuple[list[Sample], list[Sample]]:
    """Training and validation sequences, from the parquet files where there are fitting ones."""
    rollout = config.actor_rollout_ref.rollout
    limit = min(sft.max_length, rollout.max_model_len)
    parts = replace(config.actor_rollout_ref, rollout=replace(rollout, max_model_len=limit))
    config = replace(config, actor_rollout_ref=parts)
    splits = {"train": (sft.seed, sft.train_size), "test": (sft.seed + sft.train_size, sft.val_size)}
    found = []
    for split, (first_seed, num_levels) in splits.items():
        made_from = origin(config, sft, tokenizer, first_seed=first_seed, num_levels=num_levels)
        path = Path(sft.data_dir) / f"{split}.parquet" if sft.data_dir else None
        todo = chunks(config.es_manager.train.env_configs.tags, first_seed, num_levels)
        made = demonstrate(config, sft, todo, model=model, tokenizer=tokenizer)
        watched = watch(made, len(todo), f"{split} demonstrations")  # nothing is played before somebody asks for it
        if path is not None and not is_made_from(path, made_from):
            write_parquet(path, watched, split=split, made_from=made_from)
        episodes = read_parquet(path) if path else [episode for part in watched for episode in part]
        if not episodes:
            raise ConfigError(
                f"No level from seed {first_seed} on has a solution of at most sft.max_plan={sft.max_plan} actions. "
                "Raise sft.max_plan, or choose an environment with a solver."
            )
        found.append(training_samples(config, episodes))
    return found[0], found[1]


def training_samples(config: Config, episodes: Sequence[Episode]) -> list[Sample]:
    """The sequences of the episodes, replies marked; supervised training reads no score."""
    is_full = config.agent_proxy.context_window_mode == "full"
    return to_samples(episodes, [0.0] * len(episodes), is_full_context=is_full, use_turn_scores=False)


def watch(parts: Iterable[list[Episode]], total: int, title: str) -> Iterator[list[Episode]]:
    num_episodes = 0
    with progress(title, total) as advance:
        for part in parts:
            num_episodes += len(part)
            advance(f"{num_episodes} episodes")
            yield part


# --- parquet


def origin(config: Config, sft: SftConfig, tokenizer: Any, *, first_seed: int, num_levels: int) -> dict[str, Any]:
    """Everything the demonstrations follow from."""
    tags = config.es_manager.train.env_configs.tags
    texts = tokenizer.backend_tokenizer.to_str() + (tokenizer.chat_template or "")
    return {
        "environments": {tag: asdict(config.custom_envs[tag]) for tag in tags},
        "agent_proxy": asdict(config.agent_proxy),
        "response_length": config.actor_rollout_ref.rollout.response_length,
        "max_length": config.actor_rollout_ref.rollout.max_model_len,
        "first_seed": first_seed,
        "num_levels": num_levels,
        "noise": sft.noise,
        "max_plan": sft.max_plan,
        "tokenizer": hashlib.sha256(texts.encode()).hexdigest(),
        **data_facts(config),
    }


def arrow() -> Any:
    with needing_extra("sft", "sft.data_dir writes parquet files, which need pyarrow; sft.data_dir=null writes none"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def schema(pa: Any, made_from: dict[str, Any]) -> Any:
    """The columns of the legacy data files, and the token ids."""
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    ids = pa.list_(pa.int32())
    columns = [
        ("data_source", pa.string()),
        ("prompt", pa.list_(message)),
        ("response", pa.string()),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("split", pa.string()), ("index", pa.int64()), ("turn", pa.int32())])),
        ("prompt_ids", ids),
        ("response_ids", ids),
    ]
    return pa.schema(columns, metadata={METADATA_KEY: json.dumps(made_from, sort_keys=True)})


def to_rows(episode: Episode, split: str) -> Iterator[dict[str, Any]]:
    """One row per reply."""
    messages = episode.messages()
    for number, turn in enumerate(episode.turns):
        yield {
            "data_source": episode.tag,
            "prompt": messages[: 2 * number + 2],
            "response": turn.text,
            "ability": episode.env_type,
            "reward_model": {"style": "rule", "ground_truth": ", ".join(turn.executed)},
            "extra_info": {"split": split, "index": episode.seed, "turn": number},
            "prompt_ids": turn.prompt_ids,
            "response_ids": turn.response_ids,
        }


def write_parquet(path: Path, parts: Iterable[list[Episode]], *, split: str, made_from: dict[str, Any]) -> None:
    """Write the parts as they come; the file appears when it is whole."""
    pa = arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    columns = schema(pa, made_from)
    with pa.parquet.ParquetWriter(temporary, columns) as writer:
        for part in parts:
            rows = [row for episode in part for row in to_rows(episode, split)]
            if rows:
                writer.write_table(pa.Table.from_pylist(rows, schema=columns))
    temporary.replace(path)


def is_made_from(path: Path, made_from: dict[str, Any]) -> bool:
    """The file exists and holds just these demonstrations."""
    if not path.exists():
        return False
    stored = (arrow().parquet.read_schema(path).metadata or {}).get(METADATA_KEY, b"{}")
    return json.loads(stored) == json.loads(json.dumps(made_from))


def read_parquet(path: Path) -> list[Episode]:
    """The episodes of a file, as far as training needs them: tag, seed, and the ids of every turn."""
    episodes: list[Episode] = []
    columns = ["data_source", "ability", "extra_info", "prompt_ids", "response_ids"]
    for batch in arrow().parquet.ParquetFile(path).iter_batches(columns=columns):
        for row in batch.to_pylist():
            if row["extra_info"]["turn"] == 0:
                number = len(episodes)
                seed = row["extra_info"]["index"]
                episodes.append(
                    Episode(tag=row["data_source"], env_type=row["ability"], group_id=number, member=0, seed=seed)
                )
            ids = row["response_ids"]
            turn = Turn(
                user="",
                prompt_ids=row["prompt_ids"],
                response_ids=ids,
                logprobs=[0.0] * len(ids),
                text="",
                stop_reason="demonstrated",
            )
            episodes[-1].turns.append(turn)
    return episodes
