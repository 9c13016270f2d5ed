"""Sweeps: values with every seed, marks of failed regimes, differences, and the way to the runs."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ragen.algorithms.statistics import student_interval
from tests.view.browser.pages import Visitor, has_ink
from tests.view.browser.test_reading import MARKUP
from tests.view.reading.test_sweeps import success, swept, write_swept

SWEEP = "/sweep/0%2Fswept%2Flogs%2Fkl_sweep"


@pytest.fixture(scope="module", autouse=True)
def sweep(runs: Path) -> None:
    root = runs / "swept"
    for value, finals in (("0", (0.5, 0.6)), ("0.01", (0.7, 0.9))):
        for seed, final in enumerate(finals, start=1):
            run = swept(root, value, seed)
            write_swept(run, (0.2, final), success(run))
    early, bad = swept(root, "0.1", 1), swept(root, "0.1", 2)
    write_swept(early, (0.2, 0.1), success(early, status="early_stopped", early_stop="reward_variance_collapse"))
    write_swept(bad, (), success(bad, status="fail", last_lines=(MARKUP,)))
    (root / "logs" / "kl_sweep.log").touch()
    (root / "logs" / "kl_sweep_report.md").write_text(f"# KL sweep {MARKUP}")


def test_a_sweep_shows_points_seeds_and_failed_regimes_and_leads_to_runs(visitor: Visitor):
    page = visitor.open("/runs")
    page.get_by_role("link", name="Sweeps").click()
    page.get_by_role("link", name="kl_sweep", exact=True).click()
    point = page.locator('[data-value="kl=0.01"]')
    expect(point.get_by_role("img")).to_have_attribute("aria-label", "seed 1 0.700; seed 2 0.900")
    expect(point).to_contain_text(re.compile(r"0\.800 \[0\.\d+, 1\.000\]"))
    expect(point.locator(".difference")).to_contain_text("+0.250")
    page.get_by_label("Less").select_option("1")
    expect(page.locator('[data-value="kl=0"] .difference')).to_contain_text("−0.250")
    failed = page.locator('[data-value="kl=0.1"]')
    expect(failed).to_contain_text("failed regime")
    expect(failed).to_contain_text("early stop at 1 (reward_variance_collapse)")
    assert has_ink(page, "Validation success")
    expect(page.locator('[data-status="fail"]')).to_contain_text("<script>alert(1)</script>")  # as text
    page.get_by_text("Report, as it was written").click()
    expect(page.locator(".text-report")).to_contain_text("# KL sweep <script>")
    page.get_by_role("region", name="Runs").get_by_role("link", name="kl-0.01-seed2").click()
    expect(page.get_by_role("heading", name="kl-0.01-seed2", level=1)).to_be_visible()


def test_student_of_the_page_is_that_of_the_reports(visitor: Visitor):
    page = visitor.open("/sweeps")
    for count in (2, 3, 20, 21, 22, 60):
        values = [(7 * i % 11) / 11 for i in range(count)]
        found = page.evaluate("async (values) => (await import('app/statistics.js')).student(values)", values)
        expected = student_interval(values)
        assert [found["mean"], found["low"], found["high"]] == pytest.approx(
            [expected.mean, expected.low, expected.high]
        )


@pytest.mark.parametrize(("theme", "width"), [("light", 400), ("dark", 1280)])
def test_sweeps_are_accessible_and_fit(browser, address: str, theme: str, width: int):
    with Visitor(browser, address, width=width, theme=theme) as visitor:
        visitor.expect_accessible({"sweeps": "/sweeps", "sweep": SWEEP}, "tbody tr")
