"""The page of claims is what the records say."""

from dataclasses import replace
from pathlib import Path

from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.command import draw_figure, write_page
from ragen.reproduce.page import overview, page, section, verdict_text
from ragen.reproduce.records import read_records, write_record
from tests.reproduce.test_records import FINDING, a_record

DOCS = Path(__file__).parents[2] / "docs" / "results"


def test_the_page_in_the_repository_is_the_one_that_its_records_make():
    folder = DOCS / "claims"
    figures = [path.name for path in sorted(folder.glob("*.png"))]
    text = page(list(CLAIMS.values()), read_records(folder), figures=figures, folder="claims")
    command = "ragen reproduce --page docs/results/claims.md --records docs/results/claims"
    assert (DOCS / "claims.md").read_text() == text, f"run: {command}"


def test_a_claim_says_what_is_known_of_it(tmp_path):
    records = {("C29", "minutes"): a_record(tmp_path)}
    assert verdict_text(CLAIMS["C29"], "minutes", records) == "cannot tell (about 7 seeds would)"
    hopeless = replace(records["C29", "minutes"], finding=replace(FINDING, seeds_needed=10_000))
    assert verdict_text(CLAIMS["C29"], "minutes", {("C29", "minutes"): hopeless}).endswith(
        "(more than 1000 seeds would)"
    )
    assert verdict_text(CLAIMS["C29"], "hour", records) == "not run"
    assert verdict_text(CLAIMS["C29"], "day", records) == "-"
    assert verdict_text(CLAIMS["C7"], "minutes", records) == "not testable"
    assert "| C29 | Runs peak and then collapse" in overview([CLAIMS["C29"]], records)


def test_a_section_has_rule_numbers_and_command(tmp_path):
    text = section(
        CLAIMS["C29"], {("C29", "minutes"): a_record(tmp_path)}, figures=["C29.minutes.png"], folder="claims"
    )
    assert "Rule: Best less last validation" in text
    assert "| best | 0.21 | 0.500 [0.400, 0.600] |" in text and "| final |  | 0.300 |" in text
    assert "`ragen reproduce C29`; " in text
    assert "(claims/C29.minutes.png)" in text
    assert "**minutes: not testable.**" in section(CLAIMS["C7"], {}, figures=(), folder="claims")


def test_what_was_not_run_says_what_it_would_cost():
    text = section(CLAIMS["C5"], {}, figures=(), folder="claims")
    cost = "4 arms, 1 seed each, 1600 steps: by estimate 4 h 0 min one after another, 48.0 GB."
    assert f"**day: not run.** {cost} `ragen reproduce C5 --budget day`" in text


def test_writing_the_page_draws_what_is_missing(tmp_path):
    write_record(tmp_path / "claims", a_record(tmp_path))
    write_page(tmp_path / "claims.md", tmp_path / "claims")
    assert (tmp_path / "claims" / "C29.minutes.png").stat().st_size > 5000
    assert "![C29, published and ours](claims/C29.minutes.png)" in (tmp_path / "claims.md").read_text()


def test_a_figure_leaves_with_the_numbers_it_showed(tmp_path):
    record = a_record(tmp_path)
    path = write_record(tmp_path, record)
    assert "figure: " in draw_figure(CLAIMS["C29"], record, path) and path.with_suffix(".png").exists()
    draw_figure(CLAIMS["C29"], replace(record, finding=replace(FINDING, points=())), path)
    assert not path.with_suffix(".png").exists()
