"""A person plays levels: with clicks, with keys, with texts that would like to be more than texts."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Page, expect

from ragen.view.playing.model import Model
from ragen.view.server import guarded
from tests.view.browser.pages import Visitor
from tests.view.browser.test_reading import HOSTILE
from tests.view.test_playing_model import saying

SOKOBAN = "/play?tag=SimpleSokoban&seed=7"  # the box stands two steps below its target
LAKE = "/run/0%2Ffirst/play?tag=FrozenLake&seed=10001"


def reply(page: Page):
    return page.get_by_role("textbox", name="Reply, as the model would write it")


def test_a_level_is_played_to_its_end_with_clicks(visitor: Visitor):
    page = visitor.open(SOKOBAN)
    prompt = page.get_by_role("region", name="Prompt")
    expect(prompt).to_contain_text("You are a helpful assistant.")
    expect(prompt).to_contain_text("Actions left: 10. Reply with <think>your thoughts</think>")
    actions = page.get_by_role("group", name="Actions")
    actions.get_by_role("button", name="Down").click()
    expect(reply(page)).to_have_value("<think></think><answer>Down</answer>")
    actions.get_by_role("button", name="Take back").click()
    expect(reply(page)).to_have_value("<think>")
    for _ in range(2):
        actions.get_by_role("button", name="Up").click()
    expect(actions.get_by_role("button", name="Up")).to_be_disabled()  # two actions per answer
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("heading", name="The episode is over: solved")).to_be_visible()
    expect(page.get_by_text("10.8 from the environment, 0 for replies")).to_be_visible()
    solver = page.locator("details", has_text="The solver's line")
    expect(solver.locator(".moves li")).to_have_text("Up, Up 10.8")
    page.get_by_role("button", name="Play it again").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.get_by_role("button", name="Next level").click()
    expect(page.get_by_label("Seed")).to_have_value("8")
    assert "seed=8" in page.url


def test_a_level_of_a_run_is_played_with_keys_beside_the_episodes_of_the_model(visitor: Visitor):
    page = visitor.open("/run/0%2Ffirst/episode/train_step_1/4")
    page.get_by_role("link", name="Play this level").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert {"tag=FrozenLake", "file=train_step_1", "index=4"} <= set(page.url.partition("?")[2].split("&"))
    page.locator("h1").click()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("2")  # the second action, Down
    expect(reply(page)).to_have_value("<think></think><answer>Up || Down</answer>")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator(".turn")).to_contain_text("<think></think><answer>Up</answer>")
    page.get_by_text("The run's episodes on this level").click()
    episodes = page.get_by_role("combobox", name="Episode")
    expect(episodes.locator("option")).to_have_count(4)  # the members of the group
    expect(episodes).to_have_value("train_step_1/4")
    expect(page.locator(".beside .board")).to_be_visible()
    for turn in range(2, 12):
        if page.get_by_role("heading", name="The episode is over").is_visible():
            break
        page.locator("h1").click()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect(page.locator(".turn")).to_have_count(turn)
    expect(page.get_by_role("heading", name="The episode is over")).to_be_visible()


def test_texts_that_are_typed_do_nothing_but_cost_a_penalty(visitor: Visitor):
    page = visitor.open(LAKE)
    for text in (HOSTILE.encode("utf-8", "replace").decode(), "A" * 50_000):
        turns = page.locator(".turn").count()
        reply(page).fill(text.replace("\x00", ""))
        page.keyboard.press("Control+Enter")
        expect(page.locator(".turn")).to_have_count(turns + 1)
    expect(page.locator(".turn").last).to_contain_text("<think><script>alert(1)</script><img src=x onerror=alert(2)>")
    expect(page.locator(".turn").last).to_contain_text("⟨U+202E⟩")
    expect(page.locator(".penalty").first).to_have_text(re.compile("penalty −0.1"))
    page.wait_for_timeout(200)  # time for an attack
    assert page.locator("#app script, #app img, #app svg[onload], #app [onerror]").count() == 0
    assert visitor.overflow() <= 0


def test_what_cannot_be_played_is_said(visitor: Visitor):
    page = visitor.open("/play?tag=Chess&seed=1")
    expect(page.get_by_role("alert")).to_contain_text("no environment 'Chess'")
    visitor.complaints.clear()  # the browser logs every answer of 404


@pytest.mark.parametrize(("theme", "width"), [("light", 400), ("dark", 1280)])
def test_the_page_is_accessible_and_fits(browser, address: str, theme: str, width: int):
    with Visitor(browser, address, width=width, theme=theme) as visitor:
        visitor.expect_accessible({"game": LAKE, "bandit": "/play?tag=Bandit&seed=1"}, ".reply textarea")
        visitor.page.get_by_role("button").filter(has_text="1").first.click()
        visitor.page.get_by_role("button", name="Send").click()
        expect(visitor.page.locator(".beside .moves")).to_be_visible()
        assert visitor.violations() == []
        assert visitor.overflow() <= 0


@contextmanager
def served(model: Model, folder: Path) -> Iterator[str]:
    """The address of a page on which this model plays."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(guarded([folder], model=model), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        model.close()
        thread.join()
        listener.close()


def test_a_model_plays_live_and_its_death_is_said(browser, tmp_path):
    model = Model("tiny")
    with served(model, tmp_path) as address, Visitor(browser, address) as visitor:
        page = visitor.open("/play?tag=FrozenLake&seed=7")
        expect(page.get_by_text("tiny is being loaded.")).to_be_visible()
        page.get_by_role("button", name="Greedy").click()
        page.get_by_role("button", name="The whole episode").click()
        expect(page.get_by_role("heading", name="The episode is over")).to_be_visible(timeout=120_000)
        expect(page.locator(".turn").last).to_contain_text("</think><answer>")
        page.get_by_role("button", name="Play it again").click()
        page.get_by_role("group", name="Actions").get_by_role("button", name="Up").click()
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn")).to_have_count(1)
        page.get_by_role("button", name="Sampled").click()
        page.get_by_label("Temperature").fill("0.7")
        page.get_by_role("button", name="This turn").click()  # behind a turn of the person
        expect(page.locator(".turn")).to_have_count(2)
        assert visitor.violations() == []
        assert visitor.complaints == []
        page.get_by_role("button", name="Start", exact=True).click()
        os.kill(model.process.pid, signal.SIGKILL)
        model.process.wait()
        page.get_by_role("button", name="Next level").click()
        page.get_by_role("button", name="This turn").click()
        expect(page.get_by_role("alert")).to_contain_text("has ended (exit status -9)")
        expect(page.get_by_role("button", name="This turn")).to_be_disabled()
        expect(page.get_by_role("button", name="Send")).to_be_enabled()  # a person plays on


def test_texts_of_a_model_do_nothing(browser, tmp_path):
    with served(saying(HOSTILE), tmp_path) as address, Visitor(browser, address, width=400) as visitor:
        page = visitor.open("/play?tag=FrozenLake&seed=7")
        page.get_by_role("button", name="The whole episode").click()
        expect(page.get_by_role("heading", name="The episode is over: out of turns")).to_be_visible()
        expect(page.locator(".turn").first).to_contain_text("<img src=x onerror=alert(2)>")
        page.wait_for_timeout(200)  # time for an attack
        assert page.locator("#app script, #app img, #app svg[onload], #app [onerror]").count() == 0
        assert not set(page.locator("#app").inner_text()) & set("\x00\x1b\u202e\u202c\u2066\u2069")
        assert visitor.complaints == []
        assert visitor.overflow() <= 0
