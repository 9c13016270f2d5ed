"""The model card of a merged model: what was demonstrated to it, what it lost, and what it plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragen.config.schema import Config
from ragen.sft.config import SftConfig
from ragen.tracking.console import markdown_table
from ragen.tracking.names import SFT_VAL_LOSS
from ragen.trainer.card import assemble, base_model, environments, tags


def sft_card(
    config: Config,
    sft: SftConfig,
    *,
    rows: Sequence[Mapping[str, Any]],
    played: Sequence[Sequence[str]] = (),
    columns: Sequence[str] = (),
) -> str:
    """`rows` are the metrics of the training, `played` what the merged model achieved in the validation, as a table."""
    way = f"LoRA of rank {config.lora.rank}, merged" if config.lora.rank > 0 else "all weights"
    return assemble(
        config,
        title=f"{config.trainer.experiment_name}, supervised",
        introduction=f"{base_model(config)}, trained by RAGEN for {sft.epochs} epochs on demonstrations of the solver "
        f"of {', '.join(tags(config))} ({way}).",
        words=("supervised-fine-tuning", "multi-turn"),
        results=results(config, rows, played, columns),
        data=data(config, sft),
        settings={"sft": asdict(sft)},
    )


def results(
    config: Config, rows: Sequence[Mapping[str, Any]], played: Sequence[Sequence[str]], columns: Sequence[str]
) -> str:
    """The loss on demonstrations that were not trained on, and what the model plays."""
    losses = {row["step"]: row[SFT_VAL_LOSS] for row in rows if SFT_VAL_LOSS in row}
    trained = [step for step in losses if step > 0]
    parts = []
    if trained:
        best = min(trained, key=lambda step: (losses[step], step))
        before = f", after {losses[0]:.4f} before the training" if 0 in losses else ""
        parts.append(
            "Loss per token on demonstrations that it was not trained on: "
            f"{losses[best]:.4f} at step {best}, which is this model{before}."
        )
    if played:
        parts.append(f"On validation levels (seeds from {config.seed.val}), with 95 % intervals over levels:")
        parts.append(markdown_table(("environment", *columns), played))
    else:
        parts.append("Its validation levels were not played.")
    return "\n\n".join(parts)


def data(config: Config, sft: SftConfig) -> str:
    """Which levels were demonstrated, and how."""
    noise = f"; {sft.noise:.0%} of the replies have random actions" if sft.noise else ""
    said = (
        f"Demonstrations of the solver on {sft.train_size} levels of each environment, made from the seeds from "
        f"{sft.seed} on{noise}. The {sft.val_size} levels behind them give the loss above."
    )
    return f"{said}\n\n{environments(config)}"
