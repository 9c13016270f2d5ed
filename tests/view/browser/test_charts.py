"""The list of runs, a run's charts, and runs beside each other."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ragen.algorithms.statistics import student_interval
from ragen.tracking.rundir import RunDir
from tests.view.browser.conftest import start_training
from tests.view.browser.pages import Visitor, has_ink
from tests.view.runs import CONFIG, episode, turn

FIRST, SECOND = "0%2Ffirst", "0%2Fsecond"
PAGES = {"runs": "/runs", "run": f"/run/{FIRST}", "compare": f"/compare/{FIRST}/{SECOND}"}
SUCCESS = "Success, FrozenLake"


def test_the_list_shows_state_step_and_validation(visitor: Visitor):
    page = visitor.open("/runs")
    row = page.locator('tr[data-run="0/first"]')
    expect(row).to_contain_text("finished")
    expect(row).to_contain_text("3 / 3")
    expect(row).to_contain_text(re.compile(r"\[0\.\d+, [01]\.\d+\]"))
    expect(row.locator("svg.sparkline")).to_be_visible()


def test_a_run_of_two_environments_is_listed_by_their_mean(visitor: Visitor, runs: Path):
    run = RunDir(runs / "both")
    run.write_config(CONFIG.replace("tags: [FrozenLake], n_groups: [16]", "tags: [Easy, Hard], n_groups: [16, 16]"))
    for step, (easy, hard) in enumerate([(1.0, 0.25), (0.75, 0.0)]):
        run.log(step, {"val-env/Easy/success": easy, "val-env/Hard/success": hard})
    run.write_status("finished", step=1)
    page = visitor.open("/runs")
    row = page.locator('tr[data-run="0/both"]')
    expect(row.locator('[data-label="Last"]')).to_contain_text("0.375")
    expect(row.locator('[data-label="Best"]')).to_contain_text("0.625 step 0")
    expect(row.locator('[data-label="Validation"]')).to_contain_text("mean of Easy, Hard")
    page.set_viewport_size({"width": 400, "height": 900})
    cell = row.locator('[data-label="Validation"]')
    assert cell.evaluate("cell => cell.scrollWidth - cell.clientWidth") <= 0, "its names lie over the next cell"
    page.get_by_label("Environment").select_option("Easy")
    expect(row.locator('[data-label="Last"]')).to_contain_text("0.750")
    expect(row.locator('[data-label="Best"]')).to_contain_text("1.000 step 0")
    page = visitor.open("/run/0%2Fboth")
    expect(page.locator('[data-fact="Validation, mean"]')).to_contain_text("0.375")
    expect(page.locator('[data-fact="Validation, Hard"]')).to_contain_text("0.000")
    page = visitor.open(f"/compare/{FIRST}/0%2Fboth")
    expect(page.locator("tr").filter(has_text="both").first).to_contain_text("mean 0.375")


def test_commands_in_remedies_are_code(visitor: Visitor, runs: Path):
    run = RunDir(runs / "remedied")
    for step in range(1, 13):
        run.log(step, {"train/FrozenLake/success": 0.0, "rollout/in_group_reward_std": 0.0})
    remedy = "Look: `ragen show RUN`. Then `<b>x</b>` or a `lone one."
    run.write_status("early_stopped", "stopped", step=12, remedy=remedy)
    page = visitor.open("/run/0%2Fremedied")
    expect(page.locator(".ending code")).to_have_text(["ragen show RUN", "<b>x</b>"])
    expect(page.locator(".ending")).to_contain_text("Look: ragen show RUN. Then <b>x</b> or a `lone one.")
    expect(page.locator(".advisory .remedy").first).to_be_visible()
    assert "`" not in "".join(page.locator(".advisory").all_inner_texts())


@pytest.mark.parametrize("width", [1280, 400])
def test_the_run_card_opens_below_the_charts(browser, address: str, width: int):
    with Visitor(browser, address, width=width) as visitor:
        page = visitor.open(f"/run/{FIRST}")
        page.get_by_text("Run card", exact=True).click()
        row = page.locator(".run-card tr").filter(has_text="groups dropped by the filter")
        expect(row).to_be_visible()
        expect(row.locator("td")).to_have_text(re.compile(r"^\d+$"))
        expect(page.locator(".run-card")).to_contain_text("not measured: no GPU was used")
        assert visitor.overflow() <= 0
        assert visitor.violations() == [] and visitor.complaints == []


def test_search_and_sorting_stand_in_the_address(visitor: Visitor):
    page = visitor.open("/runs")
    page.get_by_label("Search").fill("second")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "text=second" in page.url
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="Run", exact=True).click()
    names = page.locator("tbody th a", has_text=re.compile("^(first|second)$"))
    expect(names).to_have_text(["second", "first"])
    page.reload()
    expect(names).to_have_text(["second", "first"])


def test_two_runs_are_chosen_and_compared_by_keyboard(visitor: Visitor):
    page = visitor.open("/runs")
    for name in ("first", "second"):
        page.get_by_label(f"Compare {name}").focus()
        page.keyboard.press("Space")
    page.get_by_role("link", name="Compare 2 runs").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    chart = page.locator(f'[data-chart="{SUCCESS}: validation, sampled"]')
    expect(chart.locator(".legend-entry")).to_have_count(2)
    assert has_ink(page, f"{SUCCESS}: validation, sampled")
    expect(page.get_by_text("seed.train", exact=True)).to_be_visible()
    page.get_by_role("button", name="Seeds as bands").click()
    expect(chart.locator(".legend-entry")).to_have_text(re.compile(r"first and 1 more 0\.\d+ \[.*\]"))
    expect(page.get_by_text("with Student's 95 % interval over them")).to_be_visible()


def test_seeds_are_drawn_as_mean_and_students_interval(visitor: Visitor):
    page = visitor.open("/runs")
    found = page.evaluate("""async () => {
        const { overlaid } = await import("app/compare.js");
        const table = (values) => ({ steps: [0, 1], column: () => values });
        const tables = { a: table([0.5, 0.2]), b: table([0.5, null]), c: table([0.6, null]) };
        const runs = Object.keys(tables).map((id) => ({ id, name: id }));
        return overlaid("t", "m", [runs], tables, "step", { range: [0, 1] }).series[0];
    }""")
    interval = student_interval([0.5, 0.5, 0.6])
    assert [found["values"][0], found["low"][0], found["high"][0]] == pytest.approx(
        [interval.mean, interval.low, interval.high]
    )
    assert (found["values"][1], found["low"][1]) == (0.2, None)  # one seed has no interval


def test_numbers_are_rounded_as_the_commands_print_them(visitor: Visitor):
    """A share of 256 levels lies exactly between two thousandths at every sixteenth."""
    values = [count / 256 for count in range(1, 256)] + [2 / 3, 0.0005, 0.9996, 0.99951]
    found = visitor.open(PAGES["run"]).evaluate(
        """async (values) => {
            const { share, number } = await import("app/format.js");
            return values.map((value) => [share(value), number(value)]);
        }""",
        values,
    )
    assert [shown for shown, _ in found] == [f"{value:.3f}" for value in values]
    assert [float(shown.replace("−", "-")) for _, shown in found] == [float(f"{value:.3g}") for value in values]
    huge = visitor.page.evaluate("""async () => (await import("app/format.js")).share(1e21)""")
    assert huge == "1e+21"  # JavaScript writes no decimals there


def test_references_of_compared_runs_are_named_where_they_differ(visitor: Visitor):
    page = visitor.open("/runs")
    found = page.evaluate("""async () => (await import("app/compare.js")).referencesOf([
        { name: "a", references: { T: { random: 0.2, solver: 1 } } },
        { name: "b", references: { T: { random: 0.3, solver: 1 } } },
        { name: "c" },
    ])""")
    assert found == {"T": {"random, a": 0.2, "random, b": 0.3, "solver": 1}}


def test_a_run_is_drawn_by_question(visitor: Visitor):
    page = visitor.open(PAGES["run"])
    for question in ("Does it learn?", "Does it collapse?", "What was cut?", "Where does the time go?"):
        expect(page.get_by_role("heading", name=question)).to_be_visible()
    for chart in (SUCCESS, "Entropy", "Reward deviation within groups", "Seconds of a step, by stage"):
        expect(page.locator(f'[data-chart="{chart}"] canvas')).to_be_visible()
        assert has_ink(page, chart), chart
    expect(page.locator(f'[data-chart="{SUCCESS}"]')).to_contain_text("Share of episodes that were solved.")
    assert page.locator('[data-chart="What the critic explains"]').count() == 0  # GRPO has no critic


def test_the_pointer_names_the_step_and_a_drag_zooms(visitor: Visitor):
    page = visitor.open(PAGES["run"])
    chart = page.locator(f'[data-chart="{SUCCESS}"]')
    box = chart.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.35, box["y"] + 40)
    expect(chart.locator(".legend-x")).to_have_text("step 1")
    expect(page.locator('[data-chart="Entropy"] .legend-x')).to_have_text("step 1")  # pointers move together
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=4)
    page.mouse.up()
    chart.get_by_role("button", name="Whole run").click()
    expect(chart.get_by_role("button", name="Whole run")).to_have_count(0)


def test_axes_scales_and_series_can_be_changed(visitor: Visitor):
    page = visitor.open(PAGES["run"])
    chart = page.locator(f'[data-chart="{SUCCESS}"]')
    page.get_by_role("button", name="Tokens", exact=True).click()
    assert "x=tokens" in page.url
    expect(chart.locator(".canvas")).to_have_attribute("aria-label", re.compile("over tokens"))
    chart.get_by_role("button", name="log").click()
    chart.get_by_role("button", name="training").click()
    expect(chart.get_by_role("button", name="training")).to_have_attribute("aria-pressed", "false")
    assert has_ink(page, SUCCESS)


def test_advisories_lead_to_episodes_and_groups(visitor: Visitor, runs: Path):
    folder = RunDir(runs / "mute")
    folder.write_config(CONFIG)
    invalid = {"manager_invalid_action": 1.0}
    for step in range(1, 7):
        folder.log(step, {"train/FrozenLake/success": 0.0, "train/FrozenLake/manager_invalid_action": 1.0})
    members = [episode(2, member, reward=0.0, turns=[turn("…", info=invalid)]) for member in (0, 1)]
    folder.write_episodes("train_step_6", [episode(), *members])
    folder.write_status("early_stopped", "", step=6)
    page = visitor.open("/run/0%2Fmute")
    card = page.locator(".advisory", has_text="no form")
    expect(card).to_contain_text("alarm · 90 % certain · steps 1 to 6")
    expect(card).to_contain_text("Step 6, group 2: 2 of 2 replies are invalid")
    card.get_by_role("link", name="Step 6, group 2, member 0").click()
    expect(page.get_by_role("heading", name="FrozenLake, group 2, member 0")).to_be_visible()
    page.go_back()
    card.get_by_role("link", name="Step 6, group 2", exact=True).click()
    expect(page.get_by_role("heading", name="FrozenLake, group 2")).to_be_visible()
    expect(page.locator(".member")).to_have_count(2)


def test_the_cause_of_an_early_stop_is_said_once(visitor: Visitor, runs: Path):
    folder = RunDir(runs / "stopped")
    folder.write_config(CONFIG)
    folder.log(1, {"train/FrozenLake/success": 0.0})
    reason = "the filter kept no group; the cause: all fail (success was 0.000)"
    folder.write_status("early_stopped", reason, step=1, cause="all fail", remedy="Begin with easier levels.")
    card = visitor.open("/run/0%2Fstopped").locator(".ending")
    expect(card).to_contain_text("Begin with easier levels.")
    assert card.inner_text().count("all fail") == 1


def test_any_metric_and_the_configuration_are_found_by_words(visitor: Visitor):
    page = visitor.open(PAGES["run"])
    page.get_by_label("Name").fill("pg loss")
    expect(page.locator('[data-chart="actor/pg_loss"]')).to_contain_text("Clipped policy-gradient loss.")
    page.get_by_text("Configuration,").click()
    page.get_by_label("Search").fill("adv_estimator")
    expect(page.locator(".keys > div")).to_have_text("algorithm.adv_estimatorgrpo")


def test_steps_of_a_running_training_appear_by_themselves(visitor: Visitor, runs: Path):
    page = visitor.open("/runs")
    expect(page.locator("tbody tr").first).to_be_visible()
    training = start_training(runs / "live", "trainer.total_training_steps=4")
    try:
        link = page.get_by_role("link", name="live", exact=True)
        link.click(timeout=60_000)
        step = page.locator('[data-fact="Step"] dd')
        for number in (1, 2):
            expect(step).to_have_text(re.compile(rf"^[{number}-4] of 4"), timeout=60_000)
        expect(page.locator(f'[data-chart="{SUCCESS}"] canvas')).to_be_visible()
        assert training.wait() == 0
        expect(page.locator('[data-fact="State"]')).to_contain_text("finished")
        steps = [json.loads(line)["step"] for line in (runs / "live" / "metrics.jsonl").read_text().splitlines()]
        assert steps[-1] == 4
        expect(page.locator('[data-chart="Seconds of a step"] .canvas')).to_have_attribute(
            "aria-label", re.compile("last values: step")
        )
    finally:
        training.kill()
        training.wait()


def test_an_evaluation_is_a_table_of_policies(visitor: Visitor, runs: Path):
    evaluation = RunDir(runs / "evaluated")
    evaluation.write_config(CONFIG)
    success = {"sampled": 0.5, "random": 0.25, "solver": 1.0}
    evaluation.log(0, {f"{policy}/FrozenLake/success": value for policy, value in success.items()})
    evaluation.write_episodes("sampled_T1", [episode()])
    evaluation.write_status("finished", "", step=0)
    page = visitor.open("/run/0%2Fevaluated")
    expect(page.locator("tr[data-policy] th")).to_have_text(["model, sampled", "random", "solver"])
    expect(page.locator('tr[data-policy="solver"]')).to_contain_text("1.000")
    assert visitor.violations() == []
    assert visitor.overflow() <= 0
    page.get_by_role("link", name="Episodes").click()
    page.get_by_role("link", name="sampled_T1", exact=True).click()
    expect(page.get_by_role("heading", name="FrozenLake, group 0, member 0")).to_be_visible()
    expect(page.get_by_text("is not the one of this run")).to_be_visible()  # made-up tokens do not make up the reply


def test_a_route_that_does_not_exist_says_so(visitor: Visitor):
    page = visitor.open("/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("There is no such page.")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 400)])
def test_every_page_is_accessible_and_fits(browser, address: str, theme: str, width: int):
    with Visitor(browser, address, width=width, theme=theme) as visitor:
        visitor.expect_accessible(PAGES, "table, .chart canvas")


def test_the_theme_can_be_chosen(visitor: Visitor):
    page = visitor.open("/runs")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Colours").select_option("dark")
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.get_by_label("Colours")).to_have_value("dark")
    assert page.evaluate(ground) != light
