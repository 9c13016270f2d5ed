"""The embedded models, their tokenizer, and the training that makes them."""

import ast
import os
import subprocess
import sys

import pytest
import torch

from ragen.config import load_config
from ragen.evaluation.evaluate import evaluate_model, evaluate_references
from ragen.llm_agent.build import build_agent
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.metrics import success
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.seeding import Rng
from ragen.sft.data import Chunk, Demonstrator, training_samples
from ragen.types import Episode, Sample
from tools.embedded_models.make import DEMO_SEED, RECIPES, family_config, make, make_model, make_tokenizer, validation
from tools.embedded_models.muon import orthogonalize
from tools.embedded_models.tokenizer import phrases
from tools.embedded_models.train import batches, reply_loss, train

GAMES = {
    "Bandit": ("_1_bandit", ()),
    "TwoArmedBandit": ("_1_bandit", ()),
    "FrozenLake": ("quickstart", ()),
    "CoordFrozenLake": ("_3_frozen_lake", ()),
    "SimpleSokoban": ("_2_sokoban", ()),
    "CoordSokoban": ("_2_sokoban", ()),
}


def eval_config(tag: str, levels: int, model_path: str = "tiny"):
    name, overrides = GAMES[tag]
    return load_config(
        name,
        [
            f"model_path='{model_path}'",
            f"es_manager.val.env_configs.tags=[{tag}]",
            f"es_manager.val.env_groups={levels}",
            f"es_manager.val.env_configs.n_groups=[{levels}]",
            "actor_rollout_ref.rollout.response_length=64",
            "actor_rollout_ref.rollout.max_model_len=1024",
            *overrides,
        ],
    )


def demonstrations(config, tokenizer, *, noise: float, base_seed: int, seed: int) -> tuple[list[Sample], list[Episode]]:
    """A round of demonstrations on the training environments of a config."""
    train_set = config.es_manager.train
    [tag] = train_set.env_configs.tags
    chunk = Chunk(tag=tag, first_seed=base_seed, num_levels=train_set.env_groups, noise_seed=seed)
    episodes = Demonstrator(config, tokenizer, noise=noise)(chunk)
    return training_samples(config, episodes), episodes


@pytest.mark.parametrize("tag", GAMES)
def test_the_embedded_model_plays_better_than_random(tag):
    config = eval_config(tag, levels=96)
    environments = EsManager(config.es_manager.val, config.custom_envs)
    agent = build_agent(config, env_types=environments.env_types)
    assert agent.chat is not None
    assert agent.chat.note == ""
    (greedy,) = evaluate_model(config, agent, environments, ["greedy"])
    random, solver = evaluate_references(config, environments)
    if tag == "TwoArmedBandit":  # its success only says that the arm was pulled
        pulls = [
            sum(t.info.get("n_high_arm", 0) for e in r.episodes for t in e.turns) for r in (greedy, random, solver)
        ]
        assert pulls[1] < pulls[0] <= pulls[2] == 96
    else:
        assert success(greedy.episodes).low > success(random.episodes).mean
        assert success(solver.episodes).mean >= 0.98
    replies = [turn for episode in greedy.episodes for turn in episode.turns]
    assert sum(bool(turn.thought) for turn in replies) > 0.95 * len(replies)


@pytest.mark.parametrize("family", RECIPES)
def test_the_tokenizer_of_an_embedded_model_represents_any_text(family):
    tokenizer = load_tokenizer(resolve_model(f"tiny/{family}"))
    for text in ("P_O\n#√X", "naïve 漢字 🙂", "a\x00b", " two  spaces ", "Reply with <think>your", "1234567890"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_phrases_leave_digits_names_and_board_cells_alone():
    found = phrases(["Turn 1\nState:\n#_#\nGo to Mill."], ["Mill"])
    assert found == ["Mill", "Turn ", "\nState:\n", "\nGo to "]


def test_a_tokenizer_is_the_same_in_every_process():
    code = (
        "from tools.embedded_models.make import RECIPES, make_tokenizer\n"
        "print(list(make_tokenizer(RECIPES['bandit']).get_vocab().items()))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert dict(ast.literal_eval(outputs[0])) == dict(ast.literal_eval(outputs[1]))


def test_a_turn_of_the_embedded_sokoban_costs_few_tokens():
    tokenizer = load_tokenizer(resolve_model("tiny/sokoban"))
    recipe = RECIPES["sokoban"]
    config = family_config(recipe, 5, recipe.mixtures[0][1])
    _, episodes = demonstrations(config, tokenizer, noise=0.5, base_seed=1, seed=0)
    later = [len(turn.prompt_ids) for episode in episodes for turn in episode.turns[1:]]
    assert max(later) <= 60


def test_demonstrations_train_replies_only_and_think():
    recipe = RECIPES["frozen_lake"]
    tokenizer = load_tokenizer(resolve_model("tiny/frozen_lake"))
    config = family_config(recipe, 4, recipe.mixtures[0][1])
    samples, episodes = demonstrations(config, tokenizer, noise=0.3, base_seed=7, seed=0)
    for sample, episode in zip(samples, episodes, strict=True):
        trained = [t for t, m in zip(sample.input_ids, sample.loss_mask, strict=True) if m]
        assert trained == [t for turn in episode.turns for t in turn.response_ids]
        assert all(turn.thought for turn in episode.turns)


def sample_of(ids: list[int], mask: list[int]) -> Sample:
    return Sample(
        group_id=0, member=0, input_ids=ids, loss_mask=mask, logprobs=[0.0] * len(ids), turn_spans=[], turn_scores=[]
    )


def test_batches_hold_every_sample_once_and_label_replies_only():
    samples = [sample_of([i, 5, 6], [0, 1, 0]) for i in range(1, 8)] + [sample_of([9, 8], [0, 1])]
    found = []
    for ids, labels in batches(samples, max_tokens=9, rng=Rng(0, "test")):
        assert ids.numel() <= 9
        assert (labels != -100).sum() == len(ids)
        found += [row[0].item() for row in ids]
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 9]


def test_orthogonalized_matrices_have_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((8, 8), (4, 12), (12, 4)):
        singular = torch.linalg.svdvals(orthogonalize(torch.randn(shape)))
        assert singular.min() > 0.3
        assert singular.max() < 1.3


def test_supervised_training_lowers_the_loss_on_new_levels():
    recipe = RECIPES["bandit"]
    tokenizer = make_tokenizer(recipe)
    model = make_model(recipe, tokenizer, seed=0)
    config = family_config(recipe, 120, recipe.mixtures[0][1])
    held_out, _ = demonstrations(config, tokenizer, noise=0.5, base_seed=5_000, seed=9)
    ((ids, labels),) = batches(held_out, max_tokens=100_000, rng=Rng(0, "held out"))
    with torch.no_grad():
        before = reply_loss(model, ids, labels).item()
    train(
        model,
        lambda epoch: demonstrations(config, tokenizer, noise=0.5, base_seed=10_000 * epoch, seed=epoch)[0],
        num_epochs=12,
        max_tokens=512,
        seed=0,
    )
    with torch.no_grad():
        after = reply_loss(model, ids, labels).item()
    assert after < 0.5 * before


def test_a_model_is_validated_on_every_environment_of_its_family():
    rates = validation("bandit", resolve_model("tiny/bandit"), num_levels=16)
    assert set(rates) == {"Bandit", "BanditTest", "TwoArmedBandit"}
    assert all(rates[tag][1].mean >= 0.9 for tag in ("Bandit", "TwoArmedBandit"))
    assert 0.2 < rates["BanditTest"][1].mean < 1, "it can say the names, and does not know which pays"


def demonstrated_levels(family: str) -> set[str]:
    """The contents of one round of demonstrations of a family."""
    recipe = RECIPES[family]
    found = set()
    for num_groups, overrides in recipe.mixtures:
        config = family_config(recipe, num_groups, overrides)
        environments = EsManager(config.es_manager.train, config.custom_envs)
        seats = environments.reset(levels_from(DEMO_SEED, environments.num_groups))
        found |= {seat.level for seat in seats}
    return found


def test_the_factory_does_not_demonstrate_the_test_names_of_the_bandit():
    config = family_config(RECIPES["bandit"], 200, RECIPES["bandit"].held_out[0])
    environments = EsManager(config.es_manager.train, config.custom_envs)
    unseen = {seat.level for seat in environments.reset(levels_from(123, environments.num_groups))}
    assert len(unseen) == 16
    assert not unseen & demonstrated_levels("bandit")


def test_the_vocabulary_of_the_shipped_bandit_model_is_that_of_its_factory():
    vocabulary = load_tokenizer(resolve_model("tiny/bandit")).get_vocab()
    assert make_tokenizer(RECIPES["bandit"]).get_vocab() == vocabulary


@pytest.mark.slow
def test_a_rebuilt_bandit_model_plays_like_the_shipped_one(tmp_path):
    make("bandit", out=tmp_path / "bandit")
    shipped, rebuilt = (
        load_tokenizer(path).get_vocab() for path in (resolve_model("tiny/bandit"), tmp_path / "bandit")
    )
    assert shipped == rebuilt
    rates = []
    for path in ("tiny", tmp_path / "bandit"):
        config = eval_config("Bandit", levels=256, model_path=str(path))
        environments = EsManager(config.es_manager.val, config.custom_envs)
        agent = build_agent(config, env_types=environments.env_types)
        sampled, greedy = evaluate_model(config, agent, environments, ["sampled", "greedy"])
        rates.append((success(sampled.episodes).mean, success(greedy.episodes).mean))
    assert rates[0] == pytest.approx(rates[1], abs=0.1)
