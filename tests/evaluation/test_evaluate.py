"""What the table of an evaluation says, and who plays beside the model."""

from ragen.config import load_config
from ragen.evaluation.evaluate import COLUMNS, Result, evaluate_references, table_rows
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode, Status, Turn


def episode(group: int, member: int, reward: float, status: Status) -> Episode:
    info = {"action_is_valid": 1.0, "action_is_effective": 0.5}
    turn = Turn(user="u", prompt_ids=[1], response_ids=[2], logprobs=[0.0], text="t", stop_reason="eos", info=info)
    turn.reward, turn.executed = reward, ["Up", "Down"]
    return Episode(
        tag="A", env_type="a", group_id=group, member=member, seed=group, system="s", turns=[turn], status=status
    )


def test_a_row_has_the_means_of_its_policy_without_faults():
    solved, failed = Status.SOLVED, Status.FAILED
    played = [episode(0, 0, 2, solved), episode(0, 1, 0, failed), episode(1, 0, 1, failed), episode(1, 1, 1, failed)]
    for one in played[:2]:
        one.turns[0].info["manager_invalid_action"] = 1.0  # the environment received the known actions beside
    played[0].turns[0].is_lenient_valid = False
    lost = [episode(2, 0, 9, Status.ENV_ERROR)]
    (row,) = table_rows([Result(policy="greedy", episodes=played + lost)], "A")
    found = dict(zip(COLUMNS, row, strict=True))
    assert found["success [95 %]"].startswith("0.250 [")
    del found["success [95 %]"]
    assert found == {
        "policy": "greedy",
        "pass@k": "0.500",
        "reward": "1.00",
        "actions": "2.00",
        "valid": "0.50",
        "lenient": "0.75",
        "effective": "0.50",
        "turns": "1.00",
    }


def test_a_policy_that_lost_every_episode_has_no_numbers():
    (row,) = table_rows([Result(policy="greedy", episodes=[episode(0, 0, 1, Status.ENV_ERROR)])], "A")
    assert row == ["greedy", "no episode without a fault", *[""] * 7]


def test_the_solver_plays_beside_a_random_policy_and_wins():
    levels = ["es_manager.val.env_groups=8", "es_manager.val.env_configs.n_groups=[8]"]
    config = load_config("_2_sokoban", ["model_path=tiny", *levels])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    try:
        random, solver = evaluate_references(config, environments)
    finally:
        environments.close()
    assert (random.policy, solver.policy) == ("random", "solver")
    assert all(episode.is_success for episode in solver.episodes) and len(solver.episodes) == 8
    assert sum(episode.is_success for episode in random.episodes) < 4


def test_each_reference_plays_the_tags_that_it_can_play():
    tag = "{{env_type: 'tests.env.text_envs:{}', max_actions_per_traj: 3, env_instruction: Say., max_tokens: 9}}"
    own = [f"+custom_envs.{name}={tag.format(name)}" for name in ("Echo", "Polite")]
    groups = ["es_manager.val.env_groups=5", "es_manager.val.env_configs={tags: [Echo, Polite], n_groups: [2, 3]}"]
    config = load_config("quickstart", ["model_path=tiny", *own, *groups])
    environments = EsManager(config.es_manager.val, config.custom_envs)
    results = evaluate_references(config, environments)
    assert [result.policy for result in results] == ["random", "solver"]
    for result in results:
        assert [(episode.tag, episode.group_id) for episode in result.episodes] == [("Polite", n) for n in (2, 3, 4)]
    assert all(episode.is_success for episode in results[1].episodes)
    assert [row[0] for row in table_rows(results, "Polite")] == ["random", "solver"]
    assert table_rows(results, "Echo") == []
