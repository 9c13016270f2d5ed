"""Calls are read strictly, from JSON and from function calls, and arguments are held against their schema."""

from __future__ import annotations

import pytest

from ragen.env.tools import MAX_CALL, CallError, Tool, ToolCall, check_tool, read_call, violation
from tests.env.tool_envs import ECHO

TOOLS = [ECHO]


def block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


CALLS = {
    block('{"name": "echo", "arguments": {"text": "hi"}}'): {"text": "hi"},
    ' <tool_call>{"arguments": {"times": 2, "text": "\\u00e9"}, "name": "echo"}</tool_call> ': {
        "times": 2,
        "text": "é",
    },
    'echo(text="hi")': {"text": "hi"},
    " echo ( text = 'a\\nb' , times = 3 ) ": {"text": "a\nb", "times": 3},
}


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_read_in_either_form(text):
    assert read_call(text, TOOLS) == ToolCall("echo", CALLS[text])


@pytest.mark.parametrize("text", ["", "please", "42", "echo", "echo is a tool", "Paris (France)", "f(1)", "not a(b"])
def test_other_texts_are_answers(text):
    assert read_call(text, TOOLS) is None


WRONG = {
    block('{"name": "echo", "arguments": {"text": "hi"}'): ("syntax", "not valid JSON, column"),
    block('{"name": "echo"}'): ("syntax", "has the form"),
    block('{"name": "echo", "arguments": {}, "id": 1}'): ("syntax", "no other fields"),
    block('{"name": "echo", "arguments": "text"}'): ("syntax", "arguments an object"),
    block('{"name": "echo", "arguments": {"text": "a", "text": "b"}}'): ("syntax", "given twice"),
    block('{"name": "echo", "arguments": {"text": NaN}}'): ("syntax", "NaN is not a value"),
    block("[" * 3000): ("syntax", "not valid JSON"),
    block('{"name": "echo", "arguments": {"text": "' + "x" * MAX_CALL + '"}}'): ("syntax", "at most 4,000 are read"),
    '<tool_call>{"name": "echo", "arguments": {}}': ("syntax", "does not end"),
    'echo("hi")': ("syntax", "given by name"),
    "echo(**{'text': 'hi'})": ("syntax", "given by name"),
    "echo(text=open)": ("syntax", "plain values"),
    "echo(text=__import__('os').system('exit 1'))": ("syntax", "plain values"),
    "echo(text=" + "[" * 100 + "]" * 100 + ")": ("syntax", "nested"),
    "echo(text='a'": None,
    "echo(text='a')(b=1)": ("syntax", "cannot be read"),
    "echo(text=" + "-" * 3000 + "1)": ("syntax", ""),
    'serch(query="Oslo")': ("unknown_tool", "no tool 'serch', the tools are: echo"),
    block('{"name": "rm", "arguments": {}}'): ("unknown_tool", "no tool 'rm'"),
    "echo()": ("arguments", "lacks the argument text"),
    "echo(text=3)": ("arguments", "text must be a string, it is 3"),
    'echo(text="a", times=True)': ("arguments", "times must be an integer, it is True"),
    'echo(text="a", times=10)': ("arguments", "times must be at most 9"),
    'echo(text="a", loud=True)': ("arguments", "'loud' is not among the arguments (text, times)"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_call_is_said(text):
    if WRONG[text] is None:  # no call at all: an answer
        assert read_call(text, TOOLS) is None
        return
    with pytest.raises(CallError) as error:
        read_call(text, TOOLS)
    problem, said = WRONG[text]
    assert error.value.problem == problem and said in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": 'a "quote", a \\ and\nlines'},
        {"a": [True, None, -3, 2.5], "b": {"c": "d"}},
        {"text": "\x00 é 漢 \U0001f600"},
        {},
    ],
)
def test_a_call_survives_both_of_its_forms(arguments):
    names = {name: {} for name in arguments}
    tool = Tool(name="any", description="", parameters={"type": "object", "properties": names})
    call = ToolCall("any", arguments)
    assert read_call(str(call), [tool]) == read_call(call.block, [tool]) == call


def test_a_call_looks_like_python():
    assert (
        str(ToolCall("look", {"at": "Oslo", "far": True, "n": [1, None]})) == 'look(at="Oslo", far=True, n=[1, None])'
    )


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", 1]},
        "items": {"type": "array", "maxItems": 2, "items": {"type": "number"}},
        "where": {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]},
        "maybe": {"type": ["string", "null"]},
    },
}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({}, ""),
        ({"kind": 1, "items": [1, 2.5], "where": {"city": "Oslo"}, "maybe": None}, ""),
        ({"kind": True}, 'kind must be one of "a", 1, it is True'),
        ({"items": [1, 2, 3]}, "items must be at most 2 items"),
        ({"items": [1, "x"]}, 'items[1] must be a number, it is "x"'),
        ({"where": {}}, "where lacks city"),
        ({"where": {"city": "O"}}, "where.city must be at least 2 characters"),
        ({"where": {"city": "Oslo", "zip": 1}}, "'zip' is not among the fields of where (city)"),
        ({"maybe": 3}, "maybe must be a string or null, it is 3"),
    ],
)
def test_arguments_are_held_against_the_schema(value, wrong):
    assert violation(value, SCHEMA) == wrong


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "no name"}, "name that could be one of Python's"),
        ({"name": "class"}, "name that could be one of Python's"),
        ({"parameters": {"type": "string"}}, '"type": "object"'),
        ({"parameters": {"type": "object", "pattern": "x"}}, "got pattern"),
        ({"parameters": {"type": "object", "required": ["a"]}}, "got a"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "text"}}}}, "'text'"),
        ({"parameters": {"type": "object", "properties": {"a b": {}}}}, "'a b'"),
        ({"parameters": {"type": "object", "description": {1, 2}}}, "plain JSON"),
        ({"description": "x" * 5000}, "at most 4,000 characters"),
    ],
)
def test_a_schema_that_is_not_understood_is_refused(change, said):
    fields = {"name": "echo", "description": "", "parameters": {"type": "object"}} | change
    with pytest.raises(ValueError, match="expected") as error:
        check_tool(Tool(**fields))
    assert said in str(error.value)
