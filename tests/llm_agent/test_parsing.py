"""From replies to actions: a table of cases, a slow twin, and everything a model might come up with."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragen.engine.scripted import ScriptedEngine
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.metrics import rollout_metrics
from ragen.llm_agent.parsing import ParsedReply, parse_reply
from ragen.types import Status
from tests.llm_agent.counting import make_agent, make_seats, make_tag, rollout, script
from tests.llm_agent.templates import family_tokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>")
BLOCKS = {
    True: re.compile(r"<think>(.*?)</think>\s*<answer>(.*?)</answer>", re.DOTALL),
    False: re.compile(r"()<answer>(.*?)</answer>", re.DOTALL),
}


def parse(text: str, *, enable_think: bool = True, max_actions: int = 2) -> ParsedReply:
    return parse_reply(
        text, enable_think=enable_think, action_sep="||", max_actions=max_actions, special_strings=SPECIAL
    )


@pytest.mark.parametrize(
    ("text", "thought", "actions"),
    [
        ("<think>go</think><answer>Up || Left</answer>", "go", ["Up", "Left"]),
        ("<think>a\nb</think> \n\t <answer>\nUp\n</answer>", "a\nb", ["Up"]),
        ("<think></think><answer>Up</answer>", "", ["Up"]),
        ("<think>go</think><answer></answer>", "go", []),
        ("<think>go</think><answer> || || </answer>", "go", []),
        ("<think>go</think><answer>|| Up || || Left ||</answer>", "go", ["Up", "Left"]),
        ("Sure! <think>go</think><answer>Up</answer> Done.", "go", ["Up"]),
        ("<think>go</think><answer>Up</answer><answer>Left</answer>", "go", ["Up"]),
        ("<think>1</think><answer>Up</answer><think>2</think><answer>Left</answer>", "1", ["Up"]),
        ("<think>a</think>b</think><answer>Up</answer>", "ab", ["Up"]),
        ("<think><think>a</think><answer>Up</answer>", "a", ["Up"]),
        ("<think>I <answer>guess</answer></think><answer>Up</answer>", "I guess", ["Up"]),
        ("<think>go</think><answer><answer>Up</answer>", "go", ["Up"]),
        ("<think>go<|im_end|></think><answer>Up<|im_start|> || Left<|im_end|></answer>", "go", ["Up", "Left"]),
        ("<think>go</think><answer>Up | Left</answer>", "go", ["Up | Left"]),
    ],
)
def test_a_think_block_directly_before_an_answer_block_is_read(text, thought, actions):
    assert parse(text) == ParsedReply(True, thought, actions, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Up",
        "<answer>Up</answer>",
        "<think>go</think>",
        "<think>go</think><answer>Up",
        "<think>go<answer>Up</answer>",
        "<think>go</think> so <answer>Up</answer>",
        "go</think><answer>Up</answer>",
        "<THINK>go</THINK><ANSWER>Up</ANSWER>",
    ],
)
def test_a_reply_without_both_blocks_has_no_actions(text):
    assert parse(text) == ParsedReply(False, "", [], 0)


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("<answer>Up</answer>", ["Up"]),
        ("<think>go</think> so <answer>Up || Left</answer>", ["Up", "Left"]),
        ("<answer>a<answer>b</answer>", ["ab"]),
    ],
)
def test_without_thoughts_the_first_answer_block_is_read(text, actions):
    assert parse(text, enable_think=False) == ParsedReply(True, "", actions, 0)


def test_without_thoughts_an_unclosed_answer_is_unusable():
    assert parse("<answer>Up", enable_think=False) == ParsedReply(False, "", [], 0)


@pytest.mark.parametrize(
    ("max_actions", "kept", "num_cut"), [(1, ["a"], 3), (3, ["a", "b", "c"], 1), (4, list("abcd"), 0)]
)
def test_the_first_actions_are_kept_and_the_others_counted(max_actions, kept, num_cut):
    reply = parse("<think>go</think><answer>a || b || || c || d</answer>", max_actions=max_actions)
    assert (reply.actions, reply.num_cut) == (kept, num_cut)


def test_empty_actions_are_dropped_however_many_come_first():
    reply = parse("<think>go</think><answer>" + "|| " * 5000 + "Up</answer>")
    assert (reply.actions, reply.num_cut) == (["Up"], 0)


def test_thousands_of_actions_are_all_counted():
    reply = parse("<think>go</think><answer>" + " || ".join(["Up"] * 9000) + "</answer>")
    assert (reply.actions, reply.num_cut) == (["Up", "Up"], 8998)


# Whatever a model writes

PIECES = ["<think>", "</think>", "<answer>", "</answer>", "||", "Up", " ", "\n", "\0", "\ud800", "<", "|", *SPECIAL]
anything = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=5), max_size=25).map("".join)


@settings(max_examples=400)
@given(anything, st.booleans(), st.integers(1, 4))
def test_parsing_equals_its_slow_twin(text, enable_think, max_actions):
    reply = parse(text, enable_think=enable_think, max_actions=max_actions)
    found = BLOCKS[enable_think].search(text)
    assert reply.is_parsed == bool(found)
    if found:
        thought, answer = map(without_markers, found.groups())
        names = [name.strip() for name in answer.split("||") if name.strip()]
        assert reply == ParsedReply(True, thought.strip(), names[:max_actions], max(0, len(names) - max_actions))


def without_markers(text: str) -> str:
    """Remove markers until none is left; the slow way, which takes a pass for every level of nesting."""
    markers = "|".join(map(re.escape, sorted(("<think>", "</think>", "<answer>", "</answer>", *SPECIAL), key=len)))
    while (shorter := re.sub(markers, "", text)) != text:
        text = shorter
    return text


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 7, 50, 3000])
def test_markers_that_come_about_by_the_removal_of_others_are_removed_too(depth):
    nested = "<thi" * depth + "<think>" + "nk>" * depth
    reply = parse(f"<think>a{nested}b</think><answer>U{nested}p || <|im_<|im_end|>end|>Left</answer>")
    assert (reply.thought, reply.actions) == ("ab", ["Up", "Left"])


ADVERSARIAL = [
    "<think></think>", "</think> ", "</think>", "<think>", "<answer>", "</answer>", "<think></think><answer>", "|| ",
    " ", "<", "</think>\n\n<answe", "<thi<think>nk>", "<thi<thi<thi<thi<thi<think>nk>nk>nk>nk>nk>",
    "a || ", "<|im_end|>",
]  # fmt: skip


@pytest.mark.parametrize("enable_think", [True, False])
@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_repeats_cost_linear_time(piece, enable_think):
    """Two million characters: a second is plenty for one pass, a quadratic scan would take hours."""
    body = piece * (2_000_000 // len(piece))
    for text in (body, "<think>" + body, f"<think>go</think><answer>{body}</answer>", f"<think>{body}</think><answer>"):
        started = time.process_time()
        parse(text, enable_think=enable_think)
        assert time.process_time() - started < 2


@settings(max_examples=100)
@given(anything)
@example("\ud800" * 3)
@example("</think><answer>Up</answer>" + "\0" * 50)
@example("a" * 100_000)
@example("</think> " * 20_000)
def test_any_text_can_be_played_with_a_text_engine(text):
    for mode in ("full", "limited_multi_turn", "single_turn"):
        seats = make_seats(make_tag(goal=99))
        [episode] = rollout(ScriptedEngine(script(text)), seats=seats, agent=make_agent(mode, max_turn=2))
        assert episode.status in (Status.OUT_OF_TURNS, Status.FAILED)
        assert len(episode.turns) in (1, 2)
        assert text in episode.turns[0].text


@settings(max_examples=100)
@given(st.data())
def test_any_tokens_can_be_played_with_a_token_engine(data):
    tokenizer = family_tokenizer("qwen2.5")
    chat = Chat(tokenizer, forced_prefix="<think>")
    words = [tokenizer.encode(piece, add_special_tokens=False) for piece in PIECES if piece != "\ud800"]
    ids = data.draw(st.lists(st.sampled_from(words) | st.lists(st.integers(0, len(tokenizer) - 1), max_size=4)))
    reply = [token for word in ids for token in word]
    [episode] = rollout(ScriptedEngine(script(reply)), chat, make_seats(make_tag(goal=99)), make_agent(max_turn=2))
    assert episode.status in (Status.OUT_OF_TURNS, Status.FAILED)
    assert all(turn.response_ids == reply[:100] for turn in episode.turns)


def test_an_answer_behind_a_hundred_thousand_characters_is_not_looked_for():
    [episode] = rollout(ScriptedEngine(script("a" * 100_000 + "</think><answer>Up</answer>")))
    assert not episode.turns[0].is_parsed
    assert episode.turns[0].text.endswith("</answer>")


# Lenient parsing

MOVES = frozenset({"up", "down", "left", "right"})


def lenient(
    answer: str, *, known: frozenset[str] = MOVES, max_actions: int = 9, is_lenient: bool = True
) -> ParsedReply:
    return parse_reply(
        f"<think>go</think><answer>{answer}</answer>",
        enable_think=True,
        action_sep="||",
        max_actions=max_actions,
        known=known,
        is_lenient=is_lenient,
    )


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        ("Up || Left", ["Up", "Left"]),
        ("Up, Left", ["Up", "Left"]),
        ("Up; LEFT;", ["Up", "LEFT"]),
        ("Up\nLeft\r\nDown", ["Up", "Left", "Down"]),
        ("1. Up\n2. Left", ["Up", "Left"]),
        ("1) Up, 2) Left", ["Up", "Left"]),
        ("- Up\n- Left", ["Up", "Left"]),
        ("* Up\n\u2022 Left", ["Up", "Left"]),
        ("**Up**, `left`, 'Down', \"right\".", ["Up", "left", "Down", "right"]),
        ("Action: Up", ["Up"]),
        ("Actions: Up, Down.", ["Up", "Down"]),
        ("Actions:\n1. **Up**\n2. **Down**\n", ["Up", "Down"]),
        ("Action 1: Up\nAction 2: Down", ["Up", "Down"]),
        ("**Action:** Up", ["Up"]),
        ("Up || Left, Down", ["Up", "Left", "Down"]),
    ],
)
def test_lenient_parsing_takes_what_models_write(answer, actions):
    reply = lenient(answer)
    assert (reply.actions, reply.is_lenient_valid) == (actions, True)
    strict = lenient(answer, is_lenient=False)
    assert strict.is_lenient_valid, "what it would have accepted is told in both"
    assert strict.actions == [name for piece in answer.split("||") if (name := piece.strip())]


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        ("", []),
        ("Actions: ", ["Actions:"]),
        ("jump", ["jump"]),
        ("I go up", ["I go up"]),
        ("Up, then jump", ["Up", "then jump"]),
        ("Up || jump, run", ["Up", "jump, run"]),
        ("Up Down", ["Up Down"]),
    ],
)
def test_unknown_actions_stay_unknown_and_known_ones_beside_them_are_found(answer, actions):
    reply = lenient(answer)
    assert (reply.is_parsed, reply.actions, reply.is_lenient_valid) == (True, actions, False)


@pytest.mark.parametrize("text", ["<answer>Up, Down</answer>", "<think>go</think><answer>Up, Down", "Up, Down"])
def test_lenient_parsing_asks_for_the_same_blocks(text):
    reply = parse_reply(text, enable_think=True, action_sep="||", max_actions=2, known=MOVES, is_lenient=True)
    assert reply == ParsedReply(False, "", [], 0, False)


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        ("open a, b", ["open a, b"]),
        ("1. Open a, b\n2. 3.5\n3. 7", ["Open a, b", "3.5", "7"]),
        ("'quoted'; 7; - 7", ["'quoted'", "7", "7"]),
        ("-7, 7", ["-7", "7"]),
        ("action: wait, 'Action: wait'", ["action: wait", "Action: wait"]),
        ("7.", ["7"]),
    ],
)
def test_names_may_hold_separators_numbers_quotes_and_labels(answer, actions):
    known = frozenset({"open a, b", "3.5", "7", "-7", "'quoted'", "action: wait"})
    reply = lenient(answer, known=known)
    assert (reply.actions, reply.is_lenient_valid) == (actions, True)


def test_only_the_first_actions_decide_and_the_others_are_counted_as_cut():
    reply = lenient("Up, Down, jump", max_actions=2)
    assert (reply.actions, reply.num_cut, reply.is_lenient_valid) == (["Up", "Down"], 1, True)


LENIENT_ADVERSARIAL = [*ADVERSARIAL, ",", "1. ", "1", "actions: ", "action ", "- ", "*", "\n", " \n", ";,\n||", "Up,"]


@pytest.mark.parametrize("piece", LENIENT_ADVERSARIAL)
def test_repeats_cost_linear_time_read_leniently(piece):
    """A hundred thousand characters, as many as are parsed of a reply: a quadratic scan would take minutes."""
    body = piece * (100_000 // len(piece))
    for answer in (body, f"actions {body}", f"1. {body}x"):
        started = time.process_time()
        lenient(answer)
        assert time.process_time() - started < 2


@settings(max_examples=200)
@given(anything, st.integers(1, 4))
def test_what_strict_parsing_accepts_lenient_parsing_reads_alike(text, max_actions):
    both = [
        parse_reply(
            text, enable_think=False, action_sep="||", max_actions=max_actions, known={"up"}, is_lenient=lenient
        )
        for is_on in (False, True)
    ]
    strict = both[0]
    if strict.actions and all(name.lower() == "up" for name in strict.actions):
        assert both == [strict, strict] and strict.is_lenient_valid
    assert both[0].is_lenient_valid == both[1].is_lenient_valid


@pytest.mark.parametrize(("mode", "executed", "penalty"), [("strict", [], -0.1), ("lenient", ["up", "Up"], 0.0)])
def test_an_episode_is_played_as_the_configuration_reads_it(mode, executed, penalty):
    agent = make_agent(answer_parsing=mode, max_turn=1)
    [episode] = rollout(ScriptedEngine(script("go</think><answer>1. up, 2. **Up**</answer>")), agent=agent)
    [turn] = episode.turns
    assert (turn.executed, turn.penalty, turn.is_lenient_valid) == (executed, penalty, True)
    metrics = rollout_metrics([episode])
    assert (metrics["format/valid"], metrics["format/lenient_valid"]) == (float(mode == "lenient"), 1.0)
