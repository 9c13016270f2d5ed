"""Make the embedded models: `make model`, or `python -m tools.embedded_models.make [family ...]`.

One small Qwen2 model per environment family, warm-started on demonstrations of a noisy teacher, or briefly on those
of a clean one: it knows the form and some of the skill, and leaves reinforcement learning room to improve. The levels
of the demonstrations start at seed 1,000,000, far from those of training (from 10,000) and validation (from 123).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.algorithms.statistics import Estimate
from ragen.config import load_config
from ragen.config.schema import Config
from ragen.env.bandit.env import ARMS
from ragen.files import write_json
from ragen.models.resolve import TINY_ROOT
from ragen.tracking.console import print_table
from ragen.types import Sample

if TYPE_CHECKING:
    from ragen.trainer.held_out import PlayedLevels

DEMO_SEED = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one embedded model is made."""

    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_size: int
    noise: float
    """Share of demonstrated replies with random actions."""
    num_epochs: int
    """Rounds of fresh demonstrations."""
    batch_tokens: int
    """Tokens of one optimizer step, padding included."""
    config_name: str
    mixtures: tuple[tuple[int, tuple[str, ...]], ...]
    """(groups per round, overrides): the prompts that are demonstrated."""
    held_out: tuple[tuple[str, ...], ...] = ()
    """Environments of the family that are never demonstrated; the tokenizer knows their words."""

    @property
    def played(self) -> list[tuple[str, ...]]:
        """The overrides of every environment that the model is made for."""
        return [*(overrides for _, overrides in self.mixtures), *self.held_out]


def tag(name: str, *overrides: str) -> tuple[str, ...]:
    return (f"es_manager.train.env_configs.tags=[{name}]", *overrides)


def arms(low: str, high: str, *overrides: str) -> tuple[str, ...]:
    """The two-armed bandit with these names."""
    names = "+custom_envs.TwoArmedBandit.env_config"
    return tag("TwoArmedBandit", f"{names}.low_risk_name='{low}'", f"{names}.high_risk_name='{high}'", *overrides)


NO_THINK = "agent_proxy.enable_think=False"
STEADY = ("custom_envs.FrozenLake.env_config.success_rate=1", "custom_envs.CoordFrozenLake.env_config.success_rate=1")
RECIPES = {
    "bandit": Recipe(
        hidden_size=48,
        num_layers=2,
        num_heads=2,
        mlp_size=128,
        noise=0.6,
        num_epochs=16,
        batch_tokens=1024,
        config_name="_1_bandit",
        mixtures=(
            (500, tag("Bandit")),
            (300, tag("TwoArmedBandit")),
            (200, tag("Bandit", NO_THINK)),
            (100, tag("TwoArmedBandit", NO_THINK)),
            # The words of the test, each pair in both roles: the model can say them and has not seen which pays.
            *((20, arms(*pair)) for names in ARMS["test"] for pair in (names, names[::-1])),
            *((10, arms(*pair, NO_THINK)) for names in ARMS["test"] for pair in (names, names[::-1])),
        ),
        # The bandit has 24 levels in all: these other names are the only ones that are unseen in training.
        held_out=(tag("BanditTest"), tag("BanditTest", NO_THINK)),
    ),
    "frozen_lake": Recipe(
        hidden_size=64,
        num_layers=3,
        num_heads=2,
        mlp_size=192,
        # A clean teacher, stopped early: reinforcement learning then has a skill to teach, not only noise to remove.
        noise=0.0,
        num_epochs=7,
        batch_tokens=4096,
        config_name="_3_frozen_lake",
        mixtures=(
            (500, tag("FrozenLake", *STEADY)),
            (250, tag("FrozenLake", "custom_envs.CoordFrozenLake.env_config.success_rate=1")),
            (200, tag("CoordFrozenLake", *STEADY)),
            (100, tag("CoordFrozenLake", "custom_envs.CoordFrozenLake.env_config.success_rate=0.8")),
            (150, tag("FrozenLake", NO_THINK, *STEADY)),
            (100, tag("CoordFrozenLake", NO_THINK, *STEADY)),
        ),
    ),
    "sokoban": Recipe(
        hidden_size=96,
        num_layers=4,
        num_heads=3,
        mlp_size=256,
        noise=0.4,
        num_epochs=40,
        batch_tokens=8192,
        config_name="_2_sokoban",
        mixtures=(
            (500, tag("SimpleSokoban")),
            (700, tag("CoordSokoban")),
            (150, tag("SokobanDifferentGridVocab")),
            (100, tag("SimpleSokoban", NO_THINK)),
            (150, tag("CoordSokoban", NO_THINK)),
        ),
    ),
}
SHORT = (
    "model_path=tiny",
    "es_manager.train.group_size=1",
    "ppo_mini_batch_size=1",
    "actor_rollout_ref.rollout.response_length=64",
    "actor_rollout_ref.rollout.max_model_len=1024",
)


def family_config(recipe: Recipe, num_groups: int, overrides: tuple[str, ...]) -> Config:
    groups = (f"es_manager.train.env_groups={num_groups}", f"es_manager.train.env_configs.n_groups=[{num_groups}]")
    quiet = ("es_manager.val.env_groups=1", "es_manager.val.env_configs.n_groups=[1]")
    tags = [o.replace("train", "val", 1) for o in overrides if o.startswith("es_manager.train.env_configs.tags")]
    return load_config(recipe.config_name, [*SHORT, *groups, *quiet, *overrides, *tags])


def make_tokenizer(recipe: Recipe) -> Any:
    """A tokenizer that knows the fixed phrases of every prompt of the family."""
    from ragen.llm_agent.es_manager import EsManager
    from ragen.llm_agent.policies import play_policy
    from tools.embedded_models.tokenizer import build_tokenizer

    texts, names = [], set()
    for overrides in recipe.played:
        config = family_config(recipe, 60, overrides)
        environments = EsManager(config.es_manager.train, config.custom_envs)
        episodes = play_policy(config, environments, noise=0.7, base_seed=DEMO_SEED, seed=1)
        names |= {name for seat in environments.seats for name in seat.actions.values()}
        for episode in episodes:
            texts += [episode.system] + [text for turn in episode.turns for text in (turn.user, turn.thought)]
    return build_tokenizer(texts, names)


def make_model(recipe: Recipe, tokenizer: Any, seed: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def demonstrated(configs: Sequence[Config], rounds: int) -> PlayedLevels:
    """The levels of all rounds of demonstrations."""
    from ragen.sft.data import levels_of
    from ragen.trainer.held_out import PlayedLevels

    played = PlayedLevels()
    for config in configs:
        train_set = config.es_manager.train
        [tag] = train_set.env_configs.tags
        for epoch in range(rounds):
            first_seed = DEMO_SEED + epoch * 10_000
            played.add(levels_of(config, tag, range(first_seed, first_seed + train_set.env_groups)))
    return played


def make(family: str, *, out: Path, num_epochs: int | None = None, noise: float | None = None, seed: int = 0) -> None:
    """Build, train and save one family; prints the loss of every round."""
    from ragen.sft.data import Chunk, Demonstrator, training_samples
    from tools.embedded_models.train import train

    recipe = RECIPES[family]
    rounds = num_epochs or recipe.num_epochs
    used_noise = recipe.noise if noise is None else noise
    started = time.monotonic()
    tokenizer = make_tokenizer(recipe)
    model = make_model(recipe, tokenizer, seed)
    configs = [family_config(recipe, num_groups, overrides) for num_groups, overrides in recipe.mixtures]
    teachers = [Demonstrator(config, tokenizer, noise=used_noise) for config in configs]
    print(f"{family}: {model.num_parameters() / 1e6:.2f}M parameters, {len(tokenizer)} tokens", flush=True)

    def next_samples(epoch: int) -> list[Sample]:
        samples = []
        first_seed = DEMO_SEED + epoch * 10_000
        for config, demonstrate in zip(configs, teachers, strict=True):
            train_set = config.es_manager.train
            [tag] = train_set.env_configs.tags
            chunk = Chunk(tag=tag, first_seed=first_seed, num_levels=train_set.env_groups, noise_seed=epoch)
            samples += training_samples(config, demonstrate(chunk))
        return samples

    def on_epoch(epoch: int, loss: float) -> None:
        seconds = time.monotonic() - started
        print(f"{family}: round {epoch + 1}/{rounds}  loss {loss:.4f}  {seconds:.0f} s", flush=True)

    train(model, next_samples, num_epochs=rounds, max_tokens=recipe.batch_tokens, seed=seed, on_epoch=on_epoch)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    facts = {
        "environments": list(dict.fromkeys(overrides[0] for _, overrides in recipe.mixtures)),
        "teacher_noise": used_noise,
        "level_seeds": [DEMO_SEED, DEMO_SEED + rounds * 10_000 - 1],
        "rounds": rounds,
        "seed": seed,
    }
    demonstrated(configs, rounds).write(out)
    write_json(out / "warm_start.json", facts)
    for file in out.iterdir():
        file.chmod(0o644)


def validation(family: str, folder: Path, num_levels: int = 256) -> dict[str, tuple[Estimate, Estimate]]:
    """Environment -> success of a model of this family on its validation levels, sampled and greedy."""
    from ragen.evaluation.evaluate import evaluate_model
    from ragen.llm_agent.build import build_agent
    from ragen.llm_agent.es_manager import EsManager
    from ragen.llm_agent.metrics import success

    recipe = RECIPES[family]
    levels = (f"es_manager.val.env_groups={num_levels}", f"es_manager.val.env_configs.n_groups=[{num_levels}]")
    rates: dict[str, tuple[Estimate, Estimate]] = {}
    for overrides in recipe.played:
        config = family_config(recipe, 1, (*overrides, *levels, f"model_path='{folder}'"))
        [tag] = config.es_manager.val.env_configs.tags
        if tag in rates:  # the first mixture of an environment is its plainest
            continue
        environments = EsManager(config.es_manager.val, config.custom_envs)
        agent = build_agent(config, env_types=environments.env_types)
        sampled, greedy = evaluate_model(config, agent, environments, ("sampled", "greedy"))
        environments.close()
        rates[tag] = success(sampled.episodes), success(greedy.episodes)
    return rates


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.embedded_models.make", description="Make embedded models.")
    parser.add_argument("families", nargs="*", help=f"which ones: {', '.join(RECIPES)} (default: all)")
    parser.add_argument("--out", type=Path, default=TINY_ROOT, help="folder that gets one directory per family")
    parser.add_argument("--epochs", type=int, help="rounds of fresh demonstrations (default: the recipe's)")
    parser.add_argument("--noise", type=float, help="share of random replies (default: the recipe's)")
    args = parser.parse_args(argv)
    unknown = set(args.families) - set(RECIPES)
    if unknown:
        parser.error(f"unknown family {', '.join(sorted(unknown))}; choose from {', '.join(RECIPES)}")
    for family in args.families or RECIPES:
        shipped = TINY_ROOT / family
        before = validation(family, shipped) if (shipped / "config.json").exists() else {}
        make(family, out=args.out / family, num_epochs=args.epochs, noise=args.noise)
        rebuilt = validation(family, args.out / family)
        rows = [
            [tag, *(f"{rate}" for rate in (*before.get(tag, ("-", "-")), *rates))] for tag, rates in rebuilt.items()
        ]
        columns = ("environment", "before, sampled", "before, greedy", "rebuilt, sampled", "rebuilt, greedy")
        print_table(f"{family}: success on 256 validation levels, with 95 % intervals", columns, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
