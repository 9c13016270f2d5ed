"""Questions lead over facts that the search finds, in a world that is the same on every machine."""

from __future__ import annotations

import pytest

from ragen.env import make_env
from ragen.env.lookup.ranking import Index, words
from ragen.env.lookup.world import World
from ragen.errors import ConfigError
from ragen.seeding import Rng

SMALL = {"num_people": 24, "num_cities": 8}


def test_rare_words_and_titles_rank_first():
    index = Index([("Oslo", "Oslo is a city."), ("Bergen", "Bergen is a city near Oslo."), ("Ada", "Ada lives there.")])
    assert [found.title for found in index.search("what is Oslo?", 3)] == ["Oslo", "Bergen"]
    assert [found.title for found in index.search("city near ADA", 1)] == ["Ada"]
    assert index.search("nothing at all", 3) == [] and index.search("the of is", 3) == []
    assert words("Who is the mayor of Dunford?") == ["mayor", "dunford"]


def test_a_question_is_the_way_of_its_facts():
    world = World(0, num_people=24, num_cities=8)
    for number in range(50):
        question = world.question(Rng(number, "test"), 3)
        values = [hop.value for hop in question.hops]
        assert [hop.subject for hop in question.hops[1:]] == values[:-1] and values[-1] == question.answer
        assert question.hops[0].subject in question.text and question.answer not in question.text
        assert all(world.facts[hop.subject, hop.relation.name] == hop.value for hop in question.hops)


def test_each_fact_of_a_question_is_found_by_the_name_before_it():
    env = make_env("lookup")
    for seed in range(40):
        env.reset(seed)
        plan = env.solve() or []
        assert len(plan) == len(env.question.hops) + 1 and plan[-1] == env.question.answer
        for call, hop in zip(plan, env.question.hops):
            found = env.step(call).tool_result or ""
            assert found.splitlines()[0].startswith(f"{hop.subject}: ") and hop.value in found.splitlines()[0]
            assert env.hint() == hop.relation.sentence.format(subject=hop.subject, value=hop.value)
        assert env.step(plan[-1].upper()).reward == 1, "capital letters do not matter"


def test_a_seed_names_the_same_question_on_every_machine():
    env = make_env("lookup", SMALL)
    env.reset(3)
    assert env.question.text == "Who is the founder of the employer of Karla Rowan?"
    assert env.question.answer == "Dario Dalton"


def test_fresh_worlds_ask_the_same_words_of_other_facts():
    env = make_env("lookup", SMALL | {"is_fresh": True})
    facts = []
    for seed in range(3):
        env.reset(seed)
        facts.append(env.world.facts)
        assert env.question.answer in env.level_content()
    assert facts[0] != facts[1] != facts[2]
    fixed = make_env("lookup", SMALL)
    fixed.reset(1)
    first = fixed.world
    fixed.reset(2)
    assert fixed.world is first


def test_searches_without_words_find_nothing_and_say_so():
    env = make_env("lookup", SMALL)
    env.reset(0)
    assert env.step('search(query="?!")').tool_result == "No passage has any of these words."
    assert env.step('search(query="' + "x" * 300 + '")').tool_problem == "arguments"


def test_hops_the_wrong_way_round_are_refused():
    with pytest.raises(ConfigError, match="min_hops 3 exceeds max_hops 2"):
        make_env("lookup", {"min_hops": 3, "max_hops": 2})
