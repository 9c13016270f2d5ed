"""A report, opened from disk: the same page without a server, and texts that would like to be more than texts."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ragen.tracking.rundir import RunDir
from ragen.view.export import export
from tests.view.browser.pages import Visitor, has_ink
from tests.view.browser.test_reading import HOSTILE, MARKUP
from tests.view.runs import episode, turn, write_run

RUN = "/run/0%2Ffirst"
ENDS = f"</script></style><!--<script>{HOSTILE}--></body>\ufeff{{]]>"
"""What would end a script, a comment, a style or a data block."""


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a file with the runs, and one whose every text is an attack."""
    folder = tmp_path_factory.mktemp("report")
    run = RunDir(write_run(folder / "hostile" / "evil"))
    run.log(2, {f"val-env/{MARKUP.replace('/', '|')}/success": 0.5, ENDS: 1.0})
    run.write_status("failed", ENDS, step=2, cause=ENDS)
    replies = [turn(ENDS, thought=ENDS, observation=ENDS, user=ENDS, actions=[ENDS], executed=[ENDS])]
    long = [turn("A" * 2**20, thought="B" * 2**20, observation="C" * 2**20)]
    run.write_episodes("train_step_1", [episode(turns=replies, tag=MARKUP, error=ENDS), episode(0, 1, turns=long)])
    export([runs, folder / "hostile"], folder / "report.html", num_episodes=12)
    return (folder / "report.html").as_uri()


@pytest.fixture
def reader(browser, report: str):
    """Somebody who opens the file, without a network. Nothing may have been asked for, logged or blocked."""
    with Visitor(browser, report) as someone:
        asked: list[str] = []
        someone.page.on("request", lambda request: asked.append(request.url))
        someone.context.set_offline(True)
        yield someone
        assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
        assert someone.complaints == []


def test_a_report_is_the_page_without_a_server(reader: Visitor):
    page = reader.open("/runs")
    expect(page.get_by_text(re.compile(r"Report of .* 20\d\d.*Left out: \d+ of"))).to_be_visible()
    page.get_by_role("link", name="first", exact=True).click()
    for chart in ("Success, FrozenLake", "Entropy", "Seconds of a step, by stage"):
        assert has_ink(page, chart), chart
    expect(page.locator('[data-chart="Entropy"]')).to_contain_text("entropy")  # the glossary's sentence
    page.locator(".exhibits a").first.click()  # the report holds what its advisories point at
    expect(page.locator(".turn, .member").first).to_be_visible()
    page.go_back()
    page.get_by_text("Configuration, ").click()
    expect(page.get_by_text("actor_rollout_ref.actor.optim.lr", exact=True)).to_be_visible()
    page.get_by_role("link", name="Gradients").click()
    assert has_ink(page, "Norm of task")
    page.get_by_role("link", name="Filter").click()
    expect(page.get_by_role("combobox", name="Step").locator("option")).to_have_text(["1", "3"])
    page = reader.open("/compare/0%2Ffirst/0%2Fsecond")
    expect(page.get_by_text("seed.train", exact=True)).to_be_visible()
    assert has_ink(page, "Success, FrozenLake: validation, sampled")


def test_episodes_of_a_report_have_films_and_coloured_tokens(reader: Visitor):
    page = reader.open(f"{RUN}/episodes")
    expect(page.get_by_text("12 episodes of 80")).to_be_visible()
    page.get_by_label("Status").select_option("solved")
    expect(page.locator(".status").filter(has_not_text="solved")).to_have_count(0)
    page.get_by_role("searchbox", name="Text").fill("no reply says this")
    page.keyboard.press("Enter")
    expect(page.get_by_text("0 episodes of 80")).to_be_visible()
    page = reader.open(f"{RUN}/episodes?file=train_step_3")
    page.locator("tbody tr a").first.click()
    expect(page.locator(".token").first).to_have_attribute("title", re.compile("log-prob"))
    page.get_by_role("button", name="Mask").click()
    expect(page.locator(".token").first).to_contain_text("<|im_start|>")  # of the prompt
    page.locator("h1").click()
    page.keyboard.press("End")
    expect(page.get_by_text("the end", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Next")).to_be_visible()
    page.get_by_role("link", name="Its group").click()
    expect(page.get_by_role("img", name=re.compile("^Histogram: "))).to_be_visible()  # of all four
    expect(page.get_by_text(re.compile(r"^\d of 4 members are shown\.$"))).to_be_visible()
    page = reader.open(f"{RUN}/episode/train_step_2/0")
    expect(page.get_by_role("alert")).to_contain_text("does not hold this episode")


@pytest.mark.parametrize("path", ["", "/episodes", "/episode/train_step_1/0", "/episode/train_step_1/1"])
def test_hostile_texts_of_a_report_do_nothing(reader: Visitor, path: str):
    page = reader.open(f"/run/1%2Fevil{path}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Reading")).to_have_count(0)
    page.wait_for_timeout(200)  # time for an attack
    assert page.locator("#app script, #app img, #app svg[onload], #app [onerror]").count() == 0
    assert page.locator("script").evaluate_all("all => all.filter((one) => !one.type).length") == 1  # the theme
    assert not set(page.locator("#app").inner_text()) & set("\x00\x1b\u202e\u202c\u2066\u2069\ufeff")
    if path.endswith("/0"):
        expect(page.locator(".text-reply")).to_contain_text("</script></style><!--<script>")


def test_a_report_of_one_run_begins_with_it_and_is_accessible(browser, runs: Path, tmp_path: Path):
    export([runs / "first"], tmp_path / "one.html", num_episodes=2)
    with Visitor(browser, (tmp_path / "one.html").as_uri(), width=400, theme="dark") as reader:
        page = reader.page
        page.goto(reader.address)
        expect(page.get_by_role("heading", name="first", level=1)).to_be_visible()
        assert reader.violations() == []
        assert reader.overflow() <= 0
        assert reader.complaints == []


def test_the_policy_of_a_report_stops_markup_that_gets_into_it(browser, report: str, tmp_path: Path):
    """It cannot; if it did, it would neither run nor reach anybody."""
    html = Path(report.removeprefix("file://")).read_text()
    owned = "document.title = 'owned'"
    attack = (
        f'<script>{owned}</script><img src="https://example.invalid/x" onerror="{owned}"><iframe src="about:blank">'
    )
    (tmp_path / "attacked.html").write_text(html.replace("</body>", f"{attack}</body>"))
    with Visitor(browser, (tmp_path / "attacked.html").as_uri()) as reader:
        page = reader.open("/runs")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        page.wait_for_timeout(200)
        assert page.title() == "ragen view"
        blocked = " ".join(reader.complaints)
        assert "script-src" in blocked and "img-src" in blocked
