"""What a run says about its settings before it starts: they work, but whoever chose them should know."""

from __future__ import annotations

from ragen.config.schema import Config


def notices(config: Config) -> list[str]:
    """One line for each thing worth knowing."""
    return [line for notice in NOTICES if (line := notice(config))]


def biased_sampling(config: Config) -> str | None:
    """Cuts of the distribution; the temperature is no such thing, since log-probs are computed with it as well."""
    rollout = config.actor_rollout_ref.rollout
    cuts = [f"top_p={rollout.top_p}"] if rollout.top_p < 1 else []
    cuts += [f"top_k={rollout.top_k}"] if rollout.top_k > 0 else []
    if not cuts:
        return None
    return (
        f"warning: actor_rollout_ref.rollout.{' and '.join(cuts)}: replies are drawn from a cut distribution, but "
        "log-probs, ratios and KL are those of the whole one, so the gradient is biased. Use top_p=1 and top_k=-1 in "
        "training."
    )


NOTICES = (biased_sampling,)
