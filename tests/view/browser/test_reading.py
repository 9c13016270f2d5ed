"""Episodes: lists, groups side by side, the film, coloured tokens, and texts that would like to be more than texts."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ragen.env import make_env
from ragen.tracking.episodes import read_episodes
from ragen.tracking.rundir import RunDir
from tests.view.browser.pages import Visitor, has_ink
from tests.view.runs import episode, turn, write_run

RUN = "/run/0%2Ffirst"
PAGES = {
    "episodes": f"{RUN}/episodes",
    "episode": f"{RUN}/episode/train_step_1/0",
    "mask": f"{RUN}/episode/train_step_1/0?colour=mask",
    "advantage": f"{RUN}/episode/train_step_1/0?colour=advantage",
    "group": f"{RUN}/group/train_step_1/0",
    "filter": f"{RUN}/filter",
    "gradients": f"{RUN}/gradients",
}
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)></svg>javascript:alert(4)"
HOSTILE = f"{MARKUP} \u202egnihtemos\u202c \x00\x1b[31m \u2066x\u2069 {{{{7*7}}}} ${{alert(5)}} \ud800"
NAME = "<img src=x onerror=alert(6)>"


def test_episodes_are_found_by_rollout_status_and_reward(visitor: Visitor):
    page = visitor.open(RUN)
    page.get_by_role("link", name="Episodes").click()
    expect(page.get_by_text(re.compile(r"^\d+ episodes$"))).to_have_text("80 episodes")  # 3 x 16 and 4 x 8
    page.get_by_label("Rollout").select_option("train_step_2")
    expect(page.get_by_text("16 episodes")).to_be_visible()
    page.get_by_label("Status").select_option("solved")
    page.get_by_role("button", name="Member").click()
    assert {"file=train_step_2", "status=solved", "sort=-member"} <= set(page.url.partition("?")[2].split("&"))
    expect(page.locator(".status").filter(has_not_text="solved")).to_have_count(0)
    page.get_by_role("searchbox", name="Text").fill("no reply says this")
    page.keyboard.press("Enter")
    expect(page.get_by_text("0 episodes")).to_be_visible()


def test_what_is_being_typed_outlives_a_new_step(visitor: Visitor, runs: Path):
    run = RunDir(write_run(runs / "typed"))
    run.write_episodes("train_step_1", [episode()])
    page = visitor.open("/run/0%2Ftyped/episodes")
    expect(page.get_by_text("1 episode", exact=True)).to_be_visible()
    page.get_by_role("searchbox", name="Text").type("go")
    run.write_episodes("train_step_2", [episode(), episode(0, 1)])
    run.log(2, {"timing_s/step": 1.0})
    expect(page.get_by_text("3 episodes")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Text")).to_have_value("go")


def test_members_of_a_group_stand_side_by_side(visitor: Visitor):
    page = visitor.open(f"{RUN}/episodes?file=train_step_1")
    page.get_by_role("link", name="Group 1 of train_step_1").first.click()
    expect(page.locator(".member")).to_have_count(4)
    expect(page.locator(".member .board")).to_have_count(4)
    expect(page.get_by_role("img", name=re.compile("^Histogram: "))).to_be_visible()
    boards = page.locator(".member .board")
    starts = {boards.nth(i).get_attribute("aria-label") for i in range(4)}
    assert len(starts) == 1  # the same level
    page.get_by_role("link", name="Member 2").click()
    expect(page.get_by_role("heading", name="FrozenLake, group 1, member 2")).to_be_visible()


def test_an_episode_plays_like_a_film(visitor: Visitor):
    page = visitor.open(PAGES["episode"])
    turns = page.locator(".turn")
    expect(turns.first).to_have_class(re.compile("current"))
    board = page.locator(".stage .board")
    start = board.get_attribute("aria-label")
    page.locator("h1").click()
    page.keyboard.press("End")
    expect(page.get_by_text("the end", exact=True)).to_be_visible()
    page.keyboard.press("Home")
    expect(board).to_have_attribute("aria-label", start)
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_text("the end", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.locator(".turn.current")).to_have_count(0)
    page.get_by_role("button", name="Turn 1", exact=True).click()
    expect(turns.first).to_have_class(re.compile("current"))


def shades(page) -> list[float]:
    return [float(value) for value in page.locator(".token").evaluate_all("all => all.map(one => one.dataset.shade)")]


def ground(page, index: int) -> str:
    return page.locator(".token").nth(index).evaluate("one => getComputedStyle(one).backgroundColor")


def test_tokens_are_coloured_by_doubt_and_ids_come_on_demand(visitor: Visitor):
    page = visitor.open(PAGES["episode"])
    token = page.locator(".token").first
    expect(token).to_have_attribute("title", re.compile(r"log-prob −?[\d.e−]+, probability .*entropy .*id \d+"))
    for colouring in ("Log-prob", "Entropy"):
        page.get_by_role("button", name=colouring).click()
        doubtful = shades(page).index(max(shades(page)))
        assert max(shades(page)) > 0.1
        assert ground(page, doubtful).startswith("rgba(230, 159, 0, 0.")
    page.get_by_role("button", name="Token ids").click()
    expect(token.locator("sub")).to_have_text(re.compile(r"^\d+$"))
    page.get_by_role("button", name="None").click()
    assert "colour=none" in page.url and "ids=1" in page.url
    assert ground(page, doubtful) == "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize(
    ("text", "tokens", "fits"),
    [
        ("Left.", ["Left", ".", "<|im_end|>"], True),
        ("Left, <|im_start|>user.", ["Left, ", "<|im_start|>", "user", "."], True),
        ("Left.", ["Up", "."], False),
    ],
)
def test_tokens_make_up_their_reply_also_with_markers_in_it(visitor: Visitor, text, tokens, fits):
    page = visitor.open(PAGES["episode"])
    turn = {"text": text, "tokens": [{"text": token} for token in tokens]}
    assert page.evaluate("turn => import('app/tokens.js').then((module) => module.fits(turn))", turn) is fits


def trained_and_dropped(runs: Path) -> tuple[int, int]:
    """Episodes of the first step whose group was kept, with an advantage below zero, and whose group was not."""
    episodes = list(read_episodes(runs / "first" / "episodes" / "train_step_1.jsonl.gz"))
    signs = [turn.advantages and turn.advantages[0] for turn in (each.turns[0] for each in episodes)]
    return next(i for i, sign in enumerate(signs) if sign and sign < 0), signs.index([])


def test_tokens_are_coloured_by_mask_and_by_advantage(visitor: Visitor, runs: Path):
    trained, dropped = trained_and_dropped(runs)
    page = visitor.open(f"{RUN}/episode/train_step_1/{trained}")
    page.get_by_role("button", name="Mask").click()
    said = page.locator(".turn").first.locator(".said")
    prompt, reply = said.filter(has=page.locator("h4:text-is('Prompt')")), said.last
    expect(prompt).to_contain_text("<|im_start|>user")
    for one, mask in ((prompt, 0), (reply, 1)):
        expect(one.locator(".token").first).to_have_attribute("title", re.compile(rf"mask {mask}, id \d+"))
        expect(one.locator(".token").first).to_have_attribute("data-shade", f"{mask}.00")
    page.get_by_role("button", name="Advantage").click()
    expect(prompt).to_have_count(0)
    expect(page.locator(".turn-head").first).to_contain_text(re.compile(r"advantage −\d"))
    assert min(shades(page)) == -1.0  # the largest of the episode is full
    assert ground(page, shades(page).index(-1.0)).startswith("rgba(230, 159, 0, 0.9")
    expect(page.locator(".token").first).to_have_attribute("title", re.compile(r"advantage −\d"))
    page = visitor.open(f"{RUN}/episode/train_step_1/{dropped}?colour=advantage")
    expect(page.get_by_text("Nothing of this episode was trained on")).to_be_visible()
    assert set(shades(page)) == {0.0}
    page = visitor.open(f"{RUN}/episode/val_step_1/0?colour=advantage")
    expect(page.get_by_text("This rollout was not made for training: nothing of it was trained on.")).to_be_visible()


def test_filters_are_replayed_on_the_groups_of_a_step(visitor: Visitor):
    page = visitor.open(RUN)
    page.get_by_role("link", name="Filter").click()
    expect(page.get_by_role("combobox", name="Step")).to_have_value("3")
    expect(page.get_by_role("region", name="Groups").locator("tbody tr")).to_have_count(4)
    own = page.locator("tr.own")
    expect(own).to_contain_text("this run")
    all_kept = page.get_by_role("row", name=re.compile("zeros in")).first
    expect(all_kept.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"^keeps groups (\d, ){3}\d$"))
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_role("combobox", name="Step")).to_have_value("2")
    assert "step=2" in page.url
    page.get_by_role("link", name="Group 0").click()
    expect(page.locator(".member")).to_have_count(4)


def test_gradients_are_shown_by_bucket(visitor: Visitor):
    page = visitor.open(RUN)
    page.get_by_role("link", name="Gradients").click()
    expect(page.get_by_role("rowheader", name="all")).to_be_visible()
    expect(page.get_by_role("rowheader", name="bucket 1")).to_be_visible()
    assert has_ink(page, "Norm of task")
    page.get_by_role("button", name="entropy", exact=True).click()
    assert "part=entropy" in page.url
    expect(page.locator('[data-chart="Norm of entropy"]')).to_contain_text("Norm of the gradient of this term")


def test_episodes_and_groups_lead_to_their_neighbours_and_no_further(visitor: Visitor):
    page = visitor.open(f"{RUN}/episode/train_step_1/14")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", name="group 3, member 3")).to_be_visible()  # the last of 4 x 4
    expect(page.get_by_role("link", name="Previous")).to_be_visible()
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page = visitor.open(f"{RUN}/group/train_step_1/2")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", name="FrozenLake, group 3")).to_be_visible()
    expect(page.locator(".member")).to_have_count(4)
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page = visitor.open(f"{RUN}/group/train_step_1/4")
    expect(page.get_by_role("alert")).to_have_text("train_step_1 has no group 4.")


@pytest.fixture(scope="module")
def hostile(address: str, tmp_path_factory: pytest.TempPathFactory, runs: Path) -> str:
    """The route of a run whose every text is an attack."""
    run = RunDir(write_run(runs / NAME))
    run.log(2, {f"val-env/{MARKUP.replace('/', '|')}/success": 0.5, MARKUP: 1.0})
    run.write_status("failed", HOSTILE, step=2, cause=HOSTILE)
    replies = [turn(HOSTILE, thought=HOSTILE, observation=HOSTILE, user=HOSTILE, actions=[HOSTILE], executed=[HOSTILE])]
    long = [turn("A" * 2**20, thought="B" * 2**20, observation="C" * 2**20)]
    members = [episode(turns=replies, tag=MARKUP, error=HOSTILE, final_observation=HOSTILE), episode(0, 1, turns=long)]
    run.write_episodes("train_step_1", members)
    return "/run/0%2F%3Cimg%20src%3Dx%20onerror%3Dalert(6)%3E"


@pytest.mark.parametrize(
    "path", ["", "/episodes", "/episode/train_step_1/0", "/episode/train_step_1/1", "/group/train_step_1/0", "/filter"]
)
def test_hostile_texts_do_nothing(visitor: Visitor, hostile: str, path: str):
    page = visitor.open(hostile + path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Reading")).to_have_count(0)
    page.wait_for_timeout(200)  # time for an attack
    assert page.locator("#app script, #app img, #app svg[onload], #app [onerror]").count() == 0
    shown = page.locator("#app").inner_text()
    assert not set(shown) & set("\x00\x1b\u202e\u202c\u2066\u2069")
    assert len(shown) < 100_000
    assert visitor.overflow() <= 0
    # At the end the visitor checks that no dialog opened and nothing was logged or blocked.


def test_hidden_characters_are_written_out_and_long_texts_open_on_demand(visitor: Visitor, hostile: str):
    page = visitor.open(f"{hostile}/episode/train_step_1/0")
    reply = page.locator(".text-reply")
    expect(reply).to_contain_text("<script>alert(1)</script><img src=x onerror=alert(2)>")
    expect(reply).to_contain_text("⟨U+202E⟩gnihtemos⟨U+202C⟩ ␀␛[31m")
    page = visitor.open(f"{hostile}/episode/train_step_1/1")
    page.locator(".text-reply").get_by_role("button").click()
    assert len(page.locator(".text-reply").inner_text()) == 2**20


def test_a_hostile_name_is_a_text_in_the_list(visitor: Visitor, hostile: str):
    page = visitor.open("/runs")
    page.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()
    expect(page.get_by_text("failed").first).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("light", 400), ("dark", 1280)])
def test_every_page_is_accessible_and_fits(browser, address: str, theme: str, width: int):
    with Visitor(browser, address, width=width, theme=theme) as visitor:
        visitor.expect_accessible(PAGES, "tbody tr, .turn, .member")


@pytest.mark.parametrize(("env_type", "options", "size"), [("sudoku", {"size": 9}, 9), ("game_2048", {"size": 3}, 3)])
def test_boards_of_numbers_are_drawn_and_read_aloud(
    visitor: Visitor, runs: Path, env_type: str, options: dict, size: int
):
    env = make_env(env_type, options)
    first = env.reset(3)
    run = RunDir(write_run(runs / f"numbers-{env_type}"))
    turns = [turn(observation=first)]
    run.write_episodes("train_step_1", [episode(turns=turns, env_type=env_type, tag=env_type, final_observation=first)])
    page = visitor.open(f"/run/0%2Fnumbers-{env_type}/episode/train_step_1/0")
    board = page.get_by_role("img", name=re.compile(f"^Board of {size} rows with \\d+ numbers: "))
    expect(board).to_be_visible()
    assert board.locator(".cell").count() == size * size
    assert "".join(board.locator(".cell-number").all_inner_texts()) == re.sub(r"r\d:|[\s.]", "", first)
    assert visitor.overflow() <= 0
