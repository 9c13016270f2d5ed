"""The cold starts for Sokoban: replies in form that look at no board."""

import re

from ragen.evaluation.evaluate import evaluate_model
from ragen.llm_agent.build import build_agent
from ragen.llm_agent.es_manager import EsManager
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import TINY_ROOT
from tests.tools.test_embedded_models import eval_config
from tools.embedded_models.cold_start import blind_player, cold_config, teach

REPLY = r"[A-Z][^<]*</think><answer>((?:Right|Down)(?: \|\| (?:Right|Down)){0,2})</answer>"


def test_a_reply_is_a_thought_and_one_to_three_actions_of_the_shares():
    tokenizer = load_tokenizer(TINY_ROOT / "sokoban")
    samples = blind_player(cold_config(16), tokenizer, {"Right": 9, "Down": 1})(0)
    assert len(samples) == 16
    replies = [tokenizer.decode(s.input_ids[start:end]) for s in samples for start, end in s.turn_spans]
    answers = [found[1] for reply in replies if (found := re.match(REPLY, reply))]
    assert len(answers) == len(replies)
    actions = [action for answer in answers for action in answer.split(" || ")]
    assert 1.2 < len(actions) / len(replies) < 1.8
    assert 0.8 < actions.count("Right") / len(actions) < 0.97


def test_the_taught_model_keeps_the_form_and_learns_the_shares(tmp_path, capsys):
    teach(TINY_ROOT / "sokoban", tmp_path / "right", shares={"Right": 1}, rounds=2, num_levels=160)
    first, last = (float(loss) for loss in re.findall(r"loss (\S+)", capsys.readouterr().out))
    assert last < first
    config = eval_config("CoordSokoban", levels=16, model_path=str(tmp_path / "right"))
    environments = EsManager(config.es_manager.val, config.custom_envs)
    agent = build_agent(config, env_types=environments.env_types)
    [sampled] = evaluate_model(config, agent, environments, ["sampled"])
    turns = [turn for episode in sampled.episodes for turn in episode.turns]
    played = [action for turn in turns for action in turn.executed]
    assert sum(turn.is_invalid for turn in turns) <= 0.1 * len(turns)
    assert played.count("Right") > 0.5 * len(played)
