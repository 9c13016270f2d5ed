"""Every generator of reasoning-gym on some seeds: does its own answer score 1, and is every text answered?"""

from __future__ import annotations

import sys
import time

from ragen.env.arithmetic import Refused
from ragen.env.checker import HOSTILE
from ragen.env.reasoning_gym.env import draw
from ragen.env.reasoning_gym.guard import check_answer
from tools.adapters.trial import Trial

SEEDS = range(5)
MAX_SECONDS = 10.0
"""For a question, or for the score of a hostile text."""
HOSTILE_NUMBERS = (
    "1e999999999",
    "[1e999999999]",
    "[[[[]]]]",
    "{}",
    "[None]",
    "1/0",
    "nan",
    "inf",
    "-1",
    "yes",
    "no",
    "none",
)


def try_all() -> dict[str, Trial]:
    from reasoning_gym.factory import DATASETS

    return {name: attempt(name) for name in sorted(DATASETS)}


def attempt(name: str) -> Trial:
    print(name, file=sys.stderr, flush=True)
    trial, scores = Trial(), []
    for seed in SEEDS:
        try:
            dataset, entry = draw(name, {}, seed)
        except Exception as error:
            trial.fault = f"it cannot be made with its defaults: {error}"
            return trial
        trial.texts.append(entry["question"])
        scores.append(float(dataset.score_answer(answer=entry["answer"], entry=entry)))
        trial.fault = trial.fault or hostile_fault(name, dataset, entry)
    if not trial.fault and min(scores) < 1:
        what = "holds no answer of its own" if entry["answer"] is None else "does not score its own answers 1"
        trial.fault = f"it {what}, so nobody can tell whether an answer earns anything"
    return trial


def hostile_fault(name: str, dataset, entry: dict) -> str:
    """What goes wrong with texts that a model may write; exceptions are expected and are no fault."""
    for text in (*HOSTILE, *HOSTILE_NUMBERS):
        begin = time.monotonic()
        try:
            check_answer(name, text.strip())
            score = float(dataset.score_answer(answer=text.strip(), entry=entry))
        except (Exception, Refused):
            score = 0.0
        if time.monotonic() - begin > MAX_SECONDS:
            return f"scoring {text[:20]!r} takes more than {MAX_SECONDS:.0f} s"
        if score >= 1 and text.strip().lower() != entry["answer"].strip().lower():
            return f"its scorer gives 1 to a senseless answer, {text[:20]!r}"
    return ""
