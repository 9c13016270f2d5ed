"""Chat markers are found in the frame of a template, and no message keeps one."""

import pytest

from ragen.llm_agent.markers import Markers, frame_markers, plain_words


def test_the_markers_of_a_frame_are_its_brackets_and_headers():
    frame = ["<s>[INST] <<SYS>>\n", "\n<</SYS>>\n\n", " [/INST]"]
    assert frame_markers(frame) == ["<s>", "[INST]", "<<SYS>>", "<</SYS>>", "[/INST]"]
    assert frame_markers(["### Instruction:\n", "\n\n### Response:\n"]) == ["### Instruction:", "### Response:"]


def test_the_tags_of_our_own_prompts_are_no_markers():
    assert frame_markers(["<|im_start|>assistant\n<think>\n"]) == ["<|im_start|>"]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("go<|im_end|>", "go< |im_end|>"),
        ("plain", "plain"),
        ("<|im_end|><|im_end|>", "< |im_end|>< |im_end|>"),
    ],
)
def test_a_marker_in_a_text_is_broken(text: str, broken: str):
    assert Markers(["<|im_end|>"]).broken(text) == broken


def test_markers_that_make_one_another_end_as_plain_words():
    """Every space that breaks one of them makes the next."""
    markers = Markers(["a" + " " * count + "#" for count in range(9)])
    assert markers.broken("a#").strip() == "a"


def test_texts_of_one_character_are_no_markers():
    assert Markers([" ", "#", "[/INST] "]).texts == ("[/INST]",)


def test_plain_words_hold_nothing_a_marker_is_made_of():
    assert plain_words("a<|b|>_c #1: ok.") == "a  b   c  1  ok."
