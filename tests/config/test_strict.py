"""The builder takes plain data into dataclasses and refuses what it would have to guess."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from ragen.config.strict import build_dataclass, nearest, type_name
from ragen.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    radius: Annotated[float, "In metres."]
    spokes: int = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Bike:
    name: str
    color: Literal["red", "blue"]
    wheels: tuple[Wheel, ...]
    size: tuple[int, int]
    has_bell: bool = False
    gears: int | Literal["fixed"] = "fixed"
    load: float | None = None
    notes: list[str] = field(default_factory=list)
    parts: dict[str, Wheel] = field(default_factory=dict)
    extras: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.size[0] < 0:
            raise ValueError("size must not be negative")


GOOD = {"name": "b", "color": "red", "wheels": [{"radius": 1}], "size": [2, 3]}


def build(**changes: Any) -> Bike:
    return build_dataclass(Bike, GOOD | changes, "bike")


def message(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(**changes)
    return str(caught.value)


def test_keys_with_a_default_may_be_left_out():
    assert build() == Bike(name="b", color="red", wheels=(Wheel(radius=1.0),), size=(2, 3))


def test_an_integer_is_taken_for_a_float_and_becomes_one():
    assert type(build(load=3).load) is float


def test_lists_become_the_container_of_the_annotation():
    bike = build(notes=("x",), wheels=[{"radius": 0.5, "spokes": 2}], parts={"front": {"radius": 1.5}})
    assert bike.notes == ["x"]
    assert bike.wheels == (Wheel(radius=0.5, spokes=2),)
    assert bike.parts == {"front": Wheel(radius=1.5)}


def test_a_union_takes_each_of_its_members():
    assert build(gears=7).gears == 7
    assert build(gears="fixed").gears == "fixed"
    assert build(load=None).load is None


def test_a_free_mapping_is_passed_on_as_it_is():
    assert build(extras={"any": [1, {"thing": None}]}).extras == {"any": [1, {"thing": None}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "red"}, ["bike.colour", "unknown key", "Did you mean bike.color?"]),
        ({"wheels": [{"radius": 1, "spoke": 2}]}, ["bike.wheels[0].spoke", "Did you mean bike.wheels[0].spokes?"]),
        ({"wheels": [{}]}, ["missing bike.wheels[0].radius", "a number"]),
        ({"color": "bleu"}, ["bike.color", "'bleu'", "Did you mean blue?", "red, blue"]),
        ({"has_bell": 1}, ["bike.has_bell", "True or False", "1 (int)"]),
        ({"has_bell": "True"}, ["bike.has_bell", "'True' (str)"]),
        ({"gears": True}, ["bike.gears", "an integer or fixed", "True (bool)"]),
        ({"load": "3.5"}, ["bike.load", "a number", "'3.5' (str)", "without quotes"]),
        ({"load": True}, ["bike.load", "True (bool)"]),
        ({"name": 12}, ["bike.name", "12 (int)", """bike.name="'12'\""""]),
        ({"name": None}, ["bike.name", "a text", "null"]),
        ({"size": [1]}, ["bike.size", "2 entries", "[1]"]),
        ({"size": [1, 2.0]}, ["bike.size[1]", "an integer", "2.0 (float)"]),
        ({"size": 3}, ["bike.size", "a list", "3 (int)"]),
        ({"parts": []}, ["bike.parts", "a mapping", "[] (list)"]),
        ({"size": [-1, 0]}, ["bike: size must not be negative"]),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(changes: dict, words: list[str]):
    text = message(**changes)
    assert [word for word in words if word not in text] == [], text


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"missing radius \(a number\)"):
        build_dataclass(Wheel, {})


def test_something_that_is_no_mapping_is_refused():
    with pytest.raises(ConfigError, match="bike: expected a mapping"):
        build_dataclass(Bike, [1], "bike")


def test_the_nearest_name_ignores_case_and_is_none_when_nothing_is_close():
    assert nearest("coordsokoban", ["CoordSokoban", "Bandit"]) == "CoordSokoban"
    assert nearest("chess", ["CoordSokoban", "Bandit"]) is None


def test_types_are_named_in_words():
    assert type_name(int | None) == "an integer or null"
    assert type_name(tuple[str, ...]) == "a list of (a text)"
