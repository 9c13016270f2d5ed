"""Whether silence pays, on numbers that fit in the head."""

import json
from collections.abc import Sequence

import pytest

from ragen.config import load_config
from ragen.trainer.starting.earnings import (
    TagEarnings,
    break_even_line,
    budget_warning,
    compare,
    earning_of,
    table,
    warning,
)
from ragen.types import Episode, Status
from tests.trainer.runs import episode


def played(total: float, status: Status = Status.FAILED, *, turns: int = 1, is_invalid: bool = False) -> Episode:
    made = episode(0, [total] + [0.0] * (turns - 1))
    made.status = status
    for turn in made.turns:
        turn.info["manager_invalid_action"] = float(is_invalid)
    return made


def sokoban(*, model: tuple[float, float] | None = None) -> TagEarnings:
    """Sokoban's defaults: silence -.5, ten moves in vain -1, a solved level 10.5; `model`: success and total."""
    found = {
        "silent": [played(-0.5, turns=5, is_invalid=True)],
        "random": [played(-1.0)] * 3 + [played(10.5, Status.SOLVED)],
        "solver": [played(10.5, Status.SOLVED)] * 2,
    }
    if model is not None:
        success, total = model
        solved = round(1000 * success)
        found["model"] = [played(total, Status.SOLVED)] * solved + [played(total)] * (1000 - solved)
    return compare("Lake", found)


def said(each: TagEarnings, changes: Sequence[str] = ()) -> str:
    return warning(each, load_config("base", changes).agent_proxy, format_penalty=-0.1)


def test_the_means_leave_out_faults():
    found = earning_of([played(1.0, Status.SOLVED, turns=3), played(0.0), played(9.0, Status.ENV_ERROR)])
    assert found is not None
    assert (found.episodes, found.success, found.total, found.turns, found.valid) == (2, 0.5, 0.5, 2.0, 1.0)
    assert earning_of([played(9.0, Status.ENV_ERROR)]) is None and earning_of([]) is None


def test_the_break_even_of_sokoban_is_four_percent():
    each = sokoban()
    assert (each.solved, each.failed) == (10.5, -1.0)
    assert each.break_even == pytest.approx(0.5 / 11.5)  # 11.5 p - 1 = -.5
    assert not each.silence_pays and said(each) == ""  # the random policy solves a quarter
    assert break_even_line(each) == (
        "Trying earns -1.00 when it fails and 10.50 when it succeeds, silence -0.50: trying pays from a success of "
        "0.043 on."
    )


@pytest.mark.parametrize(
    ("success", "total", "pays"),
    [
        (0.002, -0.62, True),  # earns less than silence
        (0.0, -0.5, True),  # is silent itself
        (0.02, -0.3, True),  # earns more for now, by few moves; if it used them all it would not
        (0.1, 0.15, False),
    ],
)
def test_the_model_is_what_silence_is_compared_with(success, total, pays):
    each = sokoban(model=(success, total))
    assert each.silence_pays is pays and bool(said(each)) is pays


def test_the_warning_has_the_numbers_and_the_remedies():
    text = said(sokoban(model=(0.002, -0.62)))
    assert text.startswith("warning: silence pays in Lake. An agent that gives invalid replies only earns -0.50, ")
    assert "the model -0.62 at a success of 0.002. Trying earns -1.00 when it fails" in text
    # five invalid replies at -.2 each cost as much as ten moves
    assert "es_manager.format_penalty (now -0.1; from -0.2 down, silence earns no more than a failed try)" in text
    assert "ragen sft" in text and "agent_proxy.max_actions_per_turn, now 2" in text and "\n" not in text


def test_a_model_whose_replies_lack_the_form_is_told_so_first():
    remedies = said(sokoban(model=(0.002, -0.62))).partition("Remedies: ")[2]
    assert remedies.startswith("es_manager.format_penalty")
    silent = [played(-0.5, turns=5, is_invalid=True)]
    found = {"silent": silent, "random": [played(-1.0), played(10.5, Status.SOLVED)], "model": silent}
    no_example, lenient = "agent_proxy.example_answer=False", "agent_proxy.answer_parsing=lenient"
    for changes, keys in (([no_example], f"agent_proxy.example_answer=True, {lenient}"), ([], lenient)):
        remedies = said(compare("Lake", found), changes).partition("Remedies: ")[2]
        assert remedies.startswith(f"a form that is easier to meet ({keys}), es_manager.format_penalty")
    remedies = said(compare("Lake", found), [lenient]).partition("Remedies: ")[2]
    assert remedies.startswith("es_manager.format_penalty"), "what is set already is no remedy"


def test_where_failing_costs_nothing_silence_never_pays():
    tries = [played(0.0), played(1.0, Status.SOLVED)]
    each = compare("Lake", {"silent": [played(-0.5)], "random": tries, "model": [played(-0.4)]})
    assert each.break_even == pytest.approx(-0.5) and not each.silence_pays
    assert break_even_line(each) == "A failed try earns 0.00, silence -0.50: silence never pays."
    each = compare("Lake", {"silent": [played(-0.5)], "random": [played(-0.001), played(1.0, Status.SOLVED)]})
    assert break_even_line(each).startswith("A failed try earns 0.00, ")


def test_a_model_without_the_form_is_not_warned_of_where_failing_earns_more_than_silence():
    silent, model = [played(-0.2, turns=2, is_invalid=True)], [played(-0.2, turns=2, is_invalid=True)]
    each = compare("Lake", {"silent": silent, "random": [played(0.08)], "solver": [played(1.0)], "model": model})
    assert each.failed == 0.54 and not each.silence_pays and said(each) == ""  # nothing was solved
    random = [played(0.08), played(1.0, Status.SOLVED)]
    each = compare("Lake", {"silent": silent, "random": random, "model": model})
    assert each.break_even is not None and each.break_even < 0 and not each.silence_pays


def test_without_other_tries_a_model_without_the_form_says_nothing():
    silent = [played(-0.1, is_invalid=True)]
    assert not compare("Lake", {"silent": silent, "model": silent}).silence_pays
    assert compare("Lake", {"silent": silent, "model": [played(-0.3)]}).silence_pays, "its own valid tries cost more"


def test_where_silence_pays_all_the_same_nothing_says_that_it_never_does():
    tries = [played(0.0), played(1.0, Status.SOLVED)]
    each = compare("Lake", {"silent": [played(-0.5)], "random": tries, "model": [played(-2.0)]})
    assert each.silence_pays and "the model -2.00 at a success of 0.000. A policy that rarely" in said(each)


def test_what_faults_left_over_is_nothing_to_judge_by():
    silent, lost = [played(-0.1, is_invalid=True)], [played(0.0, Status.ENV_ERROR)]
    each = compare("Lake", {"silent": silent, "model": [played(-0.3), *lost * 7]})
    assert not each.silence_pays and said(each) == ""
    assert table(each).splitlines()[-1] == "model: 7 of 8 episodes were lost to faults and are not counted."
    each = compare("Lake", {"silent": silent, "random": [played(-1.0)], "model": [played(-0.3), *lost * 7]})
    assert "the random policy -1.00" in said(each)
    assert compare("Lake", {"silent": silent, "model": [played(-0.3), played(-0.3), *lost]}).silence_pays


def test_a_solver_whose_budget_is_too_small_is_told_with_the_keys_to_raise():
    agent = load_config("base", ["agent_proxy.max_turn=2", "agent_proxy.max_actions_per_turn=3"]).agent_proxy

    def told(*statuses: Status) -> str:
        return budget_warning(compare("Lake", {"solver": [played(0.2, s) for s in statuses]}), agent, max_actions=10)

    turns, actions, solved = Status.OUT_OF_TURNS, Status.OUT_OF_ACTIONS, Status.SOLVED
    assert told(turns, turns) == (
        "warning: the budgets of Lake are too small for its solver: of 2 episodes 0 are solved, 2 out of turns. Raise "
        "agent_proxy.max_turn (now 2) or agent_proxy.max_actions_per_turn (now 3; free text counts as one action), or "
        "choose easier levels."
    )
    assert "1 out of actions. Raise custom_envs.Lake.max_actions_per_traj (now 10), or" in told(actions, solved)
    assert told(turns, solved, solved) == told(Status.FAILED) == told(solved) == ""
    assert budget_warning(compare("Lake", {"silent": [played(0.0)]}), agent, max_actions=10) == ""


def test_where_silence_earns_more_than_success_trying_never_pays():
    each = compare("Lake", {"silent": [played(0.0)], "random": [played(-3.0), played(-1.0, Status.SOLVED)]})
    assert each.break_even == 1.5 and each.silence_pays
    assert "Even a solved level earns only -1.00, silence 0.00: trying never pays." in said(each)


def test_without_a_solved_episode_the_totals_alone_decide():
    each = compare("Lake", {"silent": [played(-0.5)], "random": [played(-1.0)]})
    assert each.break_even is None and break_even_line(each) == "" and each.silence_pays
    assert "the random policy -1.00 at a success of 0.000. A policy that rarely" in said(each)


def test_what_was_not_played_is_not_compared():
    assert not compare("Lake", {"random": [played(-1.0)]}).silence_pays
    assert not compare("Lake", {"silent": [played(-1.0)]}).silence_pays
    assert compare("Other", {"silent": [played(-1.0)]}).policies == {}


def test_the_table_has_a_row_for_every_policy():
    assert table(sokoban(model=(0.002, -0.62))).splitlines() == [
        "What pays in Lake:",
        "  policy    success  total reward  valid turns  episodes",
        "  silent      0.000         -0.50         0.00         1",
        "  random      0.250          1.88         1.00         4",
        "  solver      1.000         10.50         1.00         2",
        "  model       0.002         -0.62         1.00      1000",
    ]


def test_the_record_is_json():
    record = json.loads(json.dumps(sokoban().to_json(), allow_nan=False))
    means = {"success": 0.25, "total": 1.875, "turns": 1.0, "valid": 1.0}
    assert record["policies"]["random"] == {"episodes": 4, **means, "faults": 0}
    assert record["silence_pays"] is False and record["break_even"] == pytest.approx(0.0435, abs=1e-4)


def test_rewards_that_pay_for_failing_are_named():
    found = {"silent": [played(-0.5)], "random": [played(49.0), played(9.0, Status.SOLVED)]}
    line = "A solved level earns 9.00, a failed one 49.00: success does not pay."
    each = compare("Lake", found)
    assert break_even_line(each) == line and not each.silence_pays
    found["random"] = [played(-10.0), played(-50.0, Status.SOLVED)]
    assert "A solved level earns -50.00, a failed one -10.00: success does not pay." in said(compare("Lake", found))


def test_a_policy_above_the_break_even_is_not_told_what_contradicts_it():
    """Its solved levels cost more moves than the solver's, so that the means of both promise it too much."""
    tries = [played(-0.6, Status.SOLVED)] * 99 + [played(-10.0)]
    each = compare("Lake", {"silent": [played(-0.5)], "random": tries, "solver": [played(1.0, Status.SOLVED)] * 99})
    assert each.silence_pays and each.break_even is not None and each.break_even < 0.99
    assert "at a success of 0.990. Remedies: " in said(each)


@pytest.mark.parametrize(("failed", "penalty"), [(-1000.0, "-200"), (-10.0, "-2"), (-1.63, "-0.33"), (-0.503, "-0.11")])
def test_the_penalty_of_the_remedy_is_large_enough(failed, penalty):
    found = {"silent": [played(-0.5, turns=5)], "random": [played(failed)]}
    assert f"from {penalty} down, silence earns no more than a failed try" in said(compare("Lake", found))
