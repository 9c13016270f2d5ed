"""What a rollout achieved, as numbers: success, actions, pass@k, and the ledger of everything that was cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean

from ragen.algorithms.statistics import Estimate, success_interval
from ragen.env.tools import ARGUMENTS, EXCEPTION, REFUSED, SYNTAX, TIMEOUT, UNKNOWN_TOOL
from ragen.types import Episode, Metrics, Status, group_episodes


def episode_metrics(episode: Episode) -> Metrics:
    """The numbers of one episode; what the environment reports per turn is averaged over the turns."""
    metrics: Metrics = {"success": float(episode.is_success), "num_actions": float(episode.num_actions)}
    sums: dict[str, float] = defaultdict(float)
    for turn in episode.turns:
        for key, value in turn.info.items():
            if key != "success":
                sums[key] += value
    metrics |= {key: total / len(episode.turns) for key, total in sums.items()}
    return metrics | {
        "reward": episode.reward,
        "score": episode.score,
        "penalty": episode.penalty,
        "num_turns": float(len(episode.turns)),
    }


def rollout_metrics(episodes: Sequence[Episode]) -> Metrics:
    """All that is said of the episodes of a rollout."""
    return rollout_means(episodes) | rollout_counts(episodes)


def rollout_means(episodes: Sequence[Episode]) -> Metrics:
    """`<tag>/<key>` means over the episodes of a tag, `<tag>/non-zero/<key>` over the non-zero values, `<tag>/pass@k`.

    Episodes lost to a fault of the environment or the engine say nothing about the policy and are left out;
    `faults/*` counts them.
    """
    metrics: Metrics = {}
    valid = [episode for episode in episodes if not episode.status.is_fault]
    for tag in dict.fromkeys(episode.tag for episode in valid):
        rows = [episode_metrics(episode) for episode in valid if episode.tag == tag]
        for key in dict.fromkeys(key for row in rows for key in row):
            values = [row.get(key, 0.0) for row in rows]
            non_zero = [value for value in values if value]
            metrics[f"{tag}/{key}"] = sum(values) / len(values)
            metrics[f"{tag}/non-zero/{key}"] = sum(non_zero) / len(non_zero) if non_zero else 0.0
        if found := pass_rate([episode for episode in episodes if episode.tag == tag]):
            group_size, rate = found
            metrics[f"{tag}/pass@{group_size}"] = rate
    lengths = [sum(len(turn.response_ids) for turn in episode.turns) for episode in valid]
    metrics["response_length"] = sum(lengths) / len(lengths) if lengths else 0.0
    return metrics | format_shares(valid)


def rollout_counts(episodes: Sequence[Episode]) -> Metrics:
    """The metrics that count: those of several rollouts are added up, where others are averaged."""
    size = {
        "episodes": float(len(episodes)),
        "response_tokens": float(sum(len(turn.response_ids) for each in episodes for turn in each.turns)),
    }
    return size | tool_ledger(episodes) | truncation_ledger(episodes) | _faults(episodes)


def pass_rate(episodes: Sequence[Episode]) -> tuple[int, float] | None:
    """k, the episodes of a group, and the share of groups that solved one of them; None without a complete group."""
    # A group that lost a member had fewer than k tries.
    groups = [group for group in group_episodes(episodes) if group.is_complete]
    if not groups:
        return None
    solved = [any(episode.is_success for episode in group.episodes) for group in groups]
    return max(len(group.episodes) for group in groups), sum(solved) / len(solved)


def success(episodes: Sequence[Episode]) -> Estimate:
    """Success rate with its interval; the levels are the independent units. Faults are left out."""
    valid = [episode for episode in episodes if not episode.status.is_fault]
    return success_interval([e.is_success for e in valid], [(e.tag, e.group_id) for e in valid])


def success_intervals(episodes: Sequence[Episode]) -> Metrics:
    """`<tag>/success_low` and `<tag>/success_high`; none for a tag that was lost to faults."""
    metrics: Metrics = {}
    for tag in dict.fromkeys(episode.tag for episode in episodes if not episode.status.is_fault):
        found = success([episode for episode in episodes if episode.tag == tag])
        metrics |= {f"{tag}/success_low": found.low, f"{tag}/success_high": found.high}
    return metrics


def format_shares(episodes: Sequence[Episode]) -> Metrics:
    """Shares of turns that were accepted as they were parsed, and that lenient parsing accepts; none without turns."""
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return {}
    return {
        "format/valid": fmean(not turn.is_invalid for turn in turns),
        "format/lenient_valid": fmean(turn.is_lenient_valid for turn in turns),
    }


TOOL_LEDGER = {
    SYNTAX: "tools/syntax_errors",
    UNKNOWN_TOOL: "tools/unknown_tools",
    ARGUMENTS: "tools/argument_errors",
    REFUSED: "tools/refusals",
    TIMEOUT: "tools/timeouts",
    EXCEPTION: "tools/exceptions",
}


def tool_ledger(episodes: Sequence[Episode]) -> Metrics:
    """Calls of tools, and how many brought no result, as counts over the rollout; none where no turn could call one."""
    turns = [turn for episode in episodes for turn in episode.turns]
    if not any("tool_calls" in turn.info or turn.tool_result is not None for turn in turns):
        return {}
    problems = Counter(turn.tool_problem for turn in turns)
    calls = {"tools/calls": float(sum(turn.tool_result is not None for turn in turns))}
    return calls | {name: float(problems[problem]) for problem, name in TOOL_LEDGER.items()}


def truncation_ledger(episodes: Sequence[Episode]) -> Metrics:
    """How often each limit cut something, as counts over the rollout."""
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "truncation/turn_cap": float(sum(e.status is Status.OUT_OF_TURNS for e in episodes)),
        "truncation/action_budget": float(sum(e.status is Status.OUT_OF_ACTIONS for e in episodes)),
        "truncation/env_limit": float(sum(e.status is Status.TRUNCATED for e in episodes)),
        "truncation/context": float(sum(e.status is Status.CONTEXT_FULL for e in episodes)),
        "truncation/first_prompt": float(sum(e.status is Status.CONTEXT_FULL and not e.turns for e in episodes)),
        "truncation/dropped_turns": float(sum(turn.num_dropped_turns for turn in turns)),
        "truncation/dropped_actions": float(sum(turn.num_dropped_actions for turn in turns)),
        "truncation/reply_length": float(sum(turn.stop_reason == "length" for turn in turns)),
        "truncation/parse_failure": float(sum(not turn.is_parsed for turn in turns)),
    }


def _faults(episodes: Sequence[Episode]) -> Metrics:
    return {
        "faults/env_errors": float(sum(e.status is Status.ENV_ERROR for e in episodes)),
        "faults/env_timeouts": float(sum(e.status is Status.ENV_TIMEOUT for e in episodes)),
        "faults/engine_errors": float(sum(e.status is Status.ENGINE_ERROR for e in episodes)),
        "faults/incomplete_groups": float(sum(not group.is_complete for group in group_episodes(episodes))),
    }
