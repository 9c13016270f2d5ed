"""Every claim is complete, and its rule says what its sentence says: made-up runs that show it, and that do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from ragen.errors import RagenError
from ragen.reproduce.claim import BUDGETS, Claim
from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.claims.c22_grpo_advantage_by_successes import estimated, formula
from ragen.reproduce.claims.c27_entropy_over_turns import turning_points
from ragen.reproduce.replays import decide_early
from ragen.tracking.rundir import RunDir
from ragen.types import Episode, Status, Turn
from tests.reproduce.evidence import Rows, evidence, successes

FILES = Path(inspect.getfile(Claim)).parent / "claims"
THOUGHTS = ("C7", "C8", "C9", "C13", "C16")
RATE = "train/A/success"
STEPS = range(1, 61)


def test_every_claim_has_a_file_a_rule_and_a_budget():
    assert [claim.number for claim in CLAIMS.values()] == list(range(1, 31))
    for claim in CLAIMS.values():
        assert claim.sentence and claim.source and claim.published and claim.rule.endswith(".")
        assert claim.judge is not None and claim.budgets, claim.name
        assert set(claim.arms) <= set(BUDGETS) and not set(claim.arms) & set(claim.not_testable)


def test_claims_about_thoughts_are_not_testable_with_embedded_models():
    assert tuple(claim.name for claim in CLAIMS.values() if "minutes" in claim.not_testable) == THOUGHTS
    assert all("minutes" in claim.arms for claim in CLAIMS.values() if claim.name not in THOUGHTS)


@pytest.mark.parametrize("path", sorted(FILES.glob("c*.py")), ids=lambda path: path.stem)
def test_a_claim_is_a_short_file(path):
    lines = path.read_text().splitlines()
    assert 20 <= len(lines) <= 68
    assert path.stem.startswith(f"c{CLAIMS[f'C{int(path.stem[1:3])}'].number:02d}_")
    assert "subprocess" not in path.read_text(), "a claim has no runner of its own"


def judged(tmp_path: Path, name: str, arms: dict[str, Callable[[int], Rows]]) -> str:
    claim = CLAIMS[name]
    assert claim.judge is not None
    assert any(set(arms) == set(budget) for budget in claim.arms.values()), "the arms of the claim"
    return claim.judge(evidence(tmp_path, arms)).verdict


# --- gradients


def buckets(step: int, norms: list[float], **measures: list[float]) -> dict[str, float]:
    """A row of metrics with a gradient analysis."""
    row: dict[str, float] = {"step": step}
    for index, norm in enumerate(norms, 1):
        start = f"grad_norm/bucket_{index}"
        row |= {f"{start}/task": norm, f"{start}/entropy": 1.0, f"{start}/kl": 1.0}
        row |= {f"{start}/{name.replace('__', '/')}": values[index - 1] for name, values in measures.items()}
    return row


def probe(norms: list[float], **measures: list[float]) -> Callable[[int], Rows]:
    return lambda seed: [
        buckets(step, [norm * (1 + 0.01 * seed * index) for index, norm in enumerate(norms)], **measures)
        for step in (1, 11)
    ]


RISING, FLAT = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0], [1.0] * 6


@pytest.mark.parametrize(("norms", "verdict"), [(RISING, "holds"), (RISING[::-1], "does not hold")])
def test_c1_wants_norms_that_rise_with_the_bucket(tmp_path, norms, verdict):
    assert judged(tmp_path, "C1", {"PPO": probe(norms), "GRPO": probe(norms)}) == verdict


def test_c2_wants_flat_regularizers(tmp_path):
    assert judged(tmp_path / "flat", "C2", {"PPO": probe(FLAT), "GRPO": probe(FLAT)}) == "holds"
    steep = probe(FLAT, entropy=[1, 1, 1, 1, 1, 2.0])
    assert judged(tmp_path / "steep", "C2", {"PPO": probe(FLAT), "GRPO": steep}) == "does not hold"


def test_c3_wants_noise_below_and_signal_above(tmp_path):
    shown = probe(FLAT, split_half_cosine__task=[0.0, 0.01, 0.1, 0.2, 0.3, 0.5])
    hidden = probe(FLAT, split_half_cosine__task=[0.3] * 6)
    assert judged(tmp_path / "shown", "C3", {"PPO": shown, "GRPO": shown}) == "holds"
    assert judged(tmp_path / "hidden", "C3", {"PPO": shown, "GRPO": hidden}) == "does not hold"


def test_c19_wants_a_steeper_rise_without_the_division(tmp_path):
    assert judged(tmp_path / "a", "C19", {"GRPO": probe(FLAT), "Dr.GRPO": probe(RISING)}) == "holds"
    assert judged(tmp_path / "b", "C19", {"GRPO": probe(RISING), "Dr.GRPO": probe(FLAT)}) == "does not hold"


PASS_RATES = [k / 8 for k in range(9)]


def by_rate(signal: list[float]) -> Callable[[int], Rows]:
    """Buckets of the pass rates 0/8 to 8/8."""

    def rows(seed: int) -> Rows:
        lengths = [length * (1 + 0.01 * seed) for length in signal]
        measures = {"norm_debiased__task": lengths, "norm_one_group__task": [1.0 + length for length in lengths]}
        return [buckets(1, signal, reward_mean=PASS_RATES, **measures)]

    return rows


def test_c22_is_the_formula_whatever_the_gradients_do(tmp_path):
    assert formula(4, 8) == pytest.approx(0.9354, abs=1e-4) and formula(0, 8) == 0
    assert estimated(3, 16) == pytest.approx(formula(3, 16), abs=1e-5)
    assert judged(tmp_path, "C22", {"GRPO": by_rate([0.0, 1, 2, 3, 4, 3, 2, 1, 0])}) == "holds"


def test_c25_wants_the_most_signal_in_the_middle(tmp_path):
    assert judged(tmp_path / "a", "C25", {"GRPO": by_rate([0.0, 0.1, 0.3, 0.5, 0.6, 0.5, 0.3, 0.1, 0])}) == "holds"
    away = by_rate([0.0, 0.6, 0.3, 0.1, 0.1, 0.1, 0.3, 0.6, 0])
    assert judged(tmp_path / "b", "C25", {"GRPO": away}) == "does not hold"


def test_a_probe_without_the_step_that_decides_is_an_error(tmp_path):
    cut = probe(FLAT)
    with pytest.raises(RagenError, match="has no step 11"):
        judged(tmp_path, "C2", {"PPO": lambda seed: cut(seed)[:1], "GRPO": cut})


# --- over steps


def steps_of(**metrics: Callable[[int, int], float]) -> Callable[[int], Rows]:
    """Every metric as a function of step and seed; __ in names stands for /."""
    return lambda seed: [
        {"step": step} | {name.replace("__", "/"): value(step, seed) for name, value in metrics.items()}
        for step in STEPS
    ]


def drop(at: int) -> Callable[[int, int], float]:
    return lambda step, seed: 1.0 if step < at + seed else 0.0


def stay(step: int, seed: int) -> float:
    return 1.0


def test_c4_wants_variance_to_fall_before_success(tmp_path):
    std = "rollout__in_group_reward_std"
    warned = steps_of(**{RATE.replace("/", "__"): drop(30), std: drop(20)})
    late = steps_of(**{RATE.replace("/", "__"): drop(20), std: drop(30)})
    never = steps_of(**{RATE.replace("/", "__"): stay, std: drop(20)})
    assert judged(tmp_path / "a", "C4", {"no filter": warned}) == "holds"
    assert judged(tmp_path / "b", "C4", {"no filter": late}) == "does not hold"
    assert judged(tmp_path / "c", "C4", {"no filter": never}) == "does not hold"


def test_c26_wants_solved_episodes_to_become_unlikely_before_the_collapse(tmp_path):
    def falls(step: int, seed: int) -> float:
        return -0.5 - 0.01 * step * (1 + 0.1 * seed)

    name = RATE.replace("/", "__")
    decays = steps_of(**{name: drop(40), "incentive__solved_logprob": falls})
    grows = steps_of(**{name: drop(40), "incentive__solved_logprob": lambda step, seed: -1 - falls(step, seed)})
    sound = steps_of(**{name: stay, "incentive__solved_logprob": falls})
    assert judged(tmp_path / "a", "C26", {"no filter": decays}) == "holds"
    assert judged(tmp_path / "b", "C26", {"no filter": grows}) == "does not hold"
    assert judged(tmp_path / "c", "C26", {"no filter": sound}) == "cannot tell"


def test_what_no_run_could_measure_is_neither_a_number_nor_a_bar(tmp_path):
    sound = evidence(tmp_path, {"no filter": steps_of(**{RATE.replace("/", "__"): stay})})
    for name in ("C4", "C26"):
        finding = CLAIMS[name].judge(sound)
        assert "nan" not in finding.ours and "inf" not in finding.ours, finding.ours
        assert all(point.ours.mean == point.ours.mean for point in finding.points)


def test_c8_wants_information_to_lead(tmp_path):
    name, information = RATE.replace("/", "__"), "collapse_first_turn_sample__mi_estimate"
    leads = steps_of(**{name: drop(40), information: lambda step, seed: drop(20)(step, 0)})
    lags = steps_of(**{name: drop(20), information: lambda step, seed: drop(40)(step, 0)})
    assert judged(tmp_path / "a", "C8", {"no filter": leads}) == "holds"
    assert judged(tmp_path / "b", "C8", {"no filter": lags}) == "does not hold"


def test_c9_wants_information_to_go_with_success(tmp_path):
    rising: dict[str, Callable[[int, int], float]] = {
        "val-env__A__success": lambda step, seed: step / 100 + (step % (seed + 3)) / 100,
        "collapse_first_turn_sample__mi_zscore": lambda step, seed: float(step),
        "collapse_first_turn_sample__reasoning_entropy_est": lambda step, seed: -float(step),
    }
    names = list(rising)
    other = {names[0]: rising[names[0]], names[1]: rising[names[2]], names[2]: rising[names[1]]}
    arms = CLAIMS["C9"].arms["hour"]
    assert judged(tmp_path / "a", "C9", dict.fromkeys(arms, steps_of(**rising))) == "holds"
    assert judged(tmp_path / "b", "C9", dict.fromkeys(arms, steps_of(**other))) == "does not hold"


def test_c7_wants_the_filter_to_keep_information(tmp_path):
    name = "collapse_first_turn_sample__retrieval_accuracy"

    def level(height: float) -> Callable[[int], Rows]:
        return steps_of(**{name: lambda step, seed: height + 0.01 * seed * height})

    arms = {"top-p 0.9": level(0.6), "KL 0.1": level(0.1), "entropy 0.01": level(0.2)}
    assert judged(tmp_path / "a", "C7", arms) == "holds"
    assert judged(tmp_path / "b", "C7", arms | {"KL 0.1": level(0.9)}) == "does not hold"


def test_c13_wants_shorter_replies(tmp_path):
    def lengths(per_step: float) -> Callable[[int], Rows]:
        return steps_of(train__response_length=lambda step, seed: 100 + (per_step + 0.01 * seed) * step)

    assert judged(tmp_path / "a", "C13", {"no filter": lengths(-0.5)}) == "holds"
    assert judged(tmp_path / "b", "C13", {"no filter": lengths(0.5)}) == "does not hold"


def test_c27_counts_turning_points(tmp_path):
    assert turning_points([1, 2, 1, 3, 4]) == 2 and turning_points([1, 2, 3]) == 0

    def turns(*levels: float) -> Callable[[int], Rows]:
        return lambda seed: [{"step": 1} | {f"entropy/turn_{i}": level for i, level in enumerate(levels, 1)}]

    assert judged(tmp_path / "a", "C27", {"no filter": turns(1, 2, 1, 2, 1)}) == "holds"
    assert judged(tmp_path / "b", "C27", {"no filter": turns(5, 4, 3, 2, 1)}) == "does not hold"


def test_c28_wants_lenient_parsing_to_find_what_strict_parsing_refuses(tmp_path):
    def validity(strict: float, lenient: float) -> Callable[[int], Rows]:
        return lambda seed: [
            {"step": step, "val-env/format/valid": value, "val-env/format/lenient_valid": other + 0.01 * seed}
            for step, value, other in ((0, 0.99, 0.99), (10, strict, lenient))
        ]

    assert judged(tmp_path / "a", "C28", {"no filter": validity(0.2, 0.8)}) == "holds"
    assert judged(tmp_path / "b", "C28", {"no filter": validity(0.2, 0.2)}) == "does not hold"


def test_c11_wants_time_in_proportion(tmp_path):
    def timed(seconds: float, kept: float) -> Callable[[int], Rows]:
        return steps_of(
            timing_s__update_actor=lambda step, seed: seconds * (1 + 0.01 * seed),
            rollout__filter_kept_ratio=lambda *_: kept,
        )

    exact = {"no filter": timed(1, 1), "top-p 0.9": timed(0.7, 0.7), "top-k 0.25": timed(0.25, 0.25)}
    assert judged(tmp_path / "a", "C11", exact) == "holds"
    assert judged(tmp_path / "b", "C11", exact | {"top-k 0.25": timed(0.6, 0.25)}) == "does not hold"


# --- validations

UP, DOWN = successes(0.4, 0.8), successes(0.4, 0.2)


@pytest.mark.parametrize(
    ("name", "winners"),
    [
        ("C14", ["5"]),
        ("C15", ["4"]),
        ("C16", ["think"]),
        ("C17", ["SFT"]),
        ("C20", ["GRPO", "GSPO", "GiGPO", "DAPO"]),
        ("C21", ["token-mean"]),
        ("C23", ["RL-ZVP"]),
        ("C30", ["mixed"]),
        ("C6", ["0.98", "0.9", "0.8"]),
        ("C5", ["top-p 0.9"]),
        ("C10", ["filtered, slip 0", "filtered, slip 0.5"]),
        ("C12", ["Sokoban, PPO", "bandit, PPO", "slippery lake, GRPO"]),
    ],
)
def test_a_claim_holds_where_its_arms_win_and_not_where_they_lose(tmp_path, name, winners):
    arms = CLAIMS[name].arms.get("minutes") or CLAIMS[name].arms["hour"]
    won = {arm: UP if arm in winners else DOWN for arm in arms}
    lost = {arm: DOWN if arm in winners else UP for arm in arms}
    assert judged(tmp_path / "won", name, won) == "holds"
    assert judged(tmp_path / "lost", name, lost) == "does not hold"
    assert judged(tmp_path / "even", name, dict.fromkeys(arms, UP)) != "holds"


def test_c29_wants_a_fall(tmp_path):
    assert judged(tmp_path / "a", "C29", {"no filter": successes(0.4, 0.7, 0.1)}) == "holds"
    assert judged(tmp_path / "b", "C29", {"no filter": successes(0.4, 0.6, 0.6)}) == "does not hold"


# --- saved episodes


def episode(group: int, member: int, reward: float) -> Episode:
    turn = Turn(user="u", prompt_ids=[1], response_ids=[2], logprobs=[-0.5], text="t", stop_reason="eos", reward=reward)
    return Episode(
        tag="A", env_type="a", group_id=group, member=member, seed=group, system="s", turns=[turn], status=Status.FAILED
    )


def saved(folder: Path, *groups: tuple[float, ...]) -> Path:
    """A run directory with the episodes of one step."""
    rows = [episode(group, member, reward) for group, row in enumerate(groups) for member, reward in enumerate(row)]
    RunDir(folder).write_episodes("train_step_10", rows)
    return folder


def test_c24_gives_up_groups_whose_first_half_is_alike(tmp_path):
    folder = saved(tmp_path / "run", (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1))
    found = decide_early(folder)
    assert (found.flat, found.saved, found.lost) == (0.5, 6 / 16, 0.5)


def test_c18_wants_softmax_alone_to_see_the_scale(tmp_path):
    def rows(task: str) -> dict[str, Callable[[int], Rows]]:
        return {task: lambda seed: [{"step": 10}]}

    spread = [(0.0, 3.0 + k, 0.0, 3.0) for k in range(8)]
    found = evidence(tmp_path, rows("lake") | rows("Sokoban"))
    for condition in found.arms.values():
        for curve in condition.curves:
            (curve.run.run_dir / "metrics.jsonl").unlink()
            saved(curve.run.run_dir, *[tuple(each + 0.01 * curve.run.seed for each in row) for row in spread])
    judge = CLAIMS["C18"].judge
    assert judge is not None
    finding = judge(found)
    assert finding.verdict == "holds", finding.ours
