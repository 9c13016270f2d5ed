"""The card of a run as a person reads it."""

from ragen.tracking.card_page import sections, to_markdown
from ragen.tracking.run_card import begin_card, read_card, summarize
from tests.tracking.trackers import config_of_loggers


def card_of(tmp_path, *, states: tuple[str, ...] = ("finished",), **status) -> dict:
    """The card of a run with some attempts, which trained nothing."""
    for number, _ in enumerate(states):
        begin_card(tmp_path, config_of_loggers(), device="cpu", from_step=5 * number)
    card = read_card(tmp_path)
    for attempt, state in zip(card["attempts"], states, strict=True):
        attempt |= {"state": state, "seconds": None if state == "killed" else 75.0, "to_step": 5}
    known = {"state": states[-1], "reason": "all steps are done", "step": 5, **status}
    return card | summarize(card["attempts"], known, rows=[], dropped=[])


def rows_of(card: dict, title: str) -> dict[str, str]:
    [section] = [section for section in sections(card) if section.title.startswith(title)]
    return dict(section.rows)


def test_an_early_stop_is_told_with_its_cause_and_validations(tmp_path):
    low = {"tag": "Lake", "step": 0, "mean": 0.25, "low": 0.1, "high": 0.4}
    high = {"tag": "Lake", "step": 5, "mean": 0.5, "low": None, "high": None}
    stop = {"early_stop": "reward_variance_collapse", "cause": "silence pays", "validation": [[low, high]]}
    found = rows_of(card_of(tmp_path, states=("early_stopped",), **stop), "How it ended")
    assert (found["state"], found["early stop"]) == ("early stopped", "reward_variance_collapse")
    assert found["its cause"] == "silence pays"
    assert found["validation, Lake"] == "0.25 [0.10, 0.40] at step 0 -> 0.50 at step 5"


def test_a_run_in_one_piece_has_no_list_of_attempts(tmp_path):
    assert not any(section.title.startswith("Attempts") for section in sections(card_of(tmp_path)))


def test_every_attempt_is_told_with_what_was_other_then(tmp_path):
    card = card_of(tmp_path, states=("killed", "finished"))
    card["attempts"][0] |= {"config_sha256": "abc", "versions": {**card["versions"], "torch": "1.0"}}
    found = rows_of(card, "Attempts, 1 resume")
    assert found["1"] == "killed, from step 0 to 5, not known, torch was 1.0, its config.yaml had SHA-256 abc"
    assert found["2"] == "finished, from step 5 to 5, 1 min 15 s"
    assert rows_of(card, "Time")["time, start to end"] == "not known"
    assert rows_of(card, "Time")["energy"] == "not measured: no GPU was used"


def test_energy_is_told_in_two_units(tmp_path):
    card = card_of(tmp_path) | {"energy_j": 7.2e6}
    assert rows_of(card, "Time")["energy"] == "7,200.0 kJ (2.000 kWh), all that its GPUs drew, whoever used them"


def test_a_run_that_has_not_ended_shows_what_is_known(tmp_path):
    begin_card(tmp_path, config_of_loggers(), device="cpu", from_step=0)
    assert [section.title for section in sections(read_card(tmp_path))] == ["What was run", "Versions and machine"]


def test_what_a_card_of_another_version_did_not_count_is_not_known(tmp_path):
    card = card_of(tmp_path)
    card["counts"] |= {"steps": 3, "groups_trained": 12.0}
    del card["counts"]["groups"], card["counts"]["tokens_trained"]
    found = rows_of(card, "Training")
    assert (found["groups trained on"], found["levels played, one a group"]) == ("12", "not known")


def test_the_page_is_markdown_that_no_text_breaks(tmp_path):
    page = to_markdown(card_of(tmp_path, reason="first line\n| second"))
    assert page.startswith("# Run card: my_run\n\n## How it ended\n")
    assert "| reason | first line<br>\\| second |" in page
