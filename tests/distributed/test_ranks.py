"""How work is shared among ranks, and what is said of those that wait."""

import pytest

from ragen.distributed.team import assign_to_ranks
from ragen.distributed.watch import IDLE, Watch
from ragen.errors import ConfigError, MissingExtra
from ragen.trainer.start import plan_start
from ragen.workers.rank import part_of_environments
from tests.trainer.runs import small_config


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("is_balanced", [True, False])
def test_every_sample_goes_to_one_rank(num_ranks, is_balanced):
    sequences = [[i % 3] * (1 + 7 * i % 5) for i in range(6)]
    parts = assign_to_ranks(sequences, num_ranks, is_balanced=is_balanced)
    assert len(parts) == num_ranks
    assert sorted(index for part in parts for index in part) == list(range(6))


def test_balanced_ranks_have_similar_numbers_of_tokens():
    sequences = [[i] * length for i, length in enumerate([90, 10, 10, 10, 10, 50])]
    parts = assign_to_ranks(sequences, 2, is_balanced=True)
    assert [sum(len(sequences[i]) for i in part) for part in parts] == [90, 90]
    assert [len(part) for part in assign_to_ranks(sequences, 2, is_balanced=False)] == [3, 3]


def test_samples_with_a_common_beginning_stay_together():
    sequences = [[1, 1, n] for n in range(4)] + [[2, 2, n] for n in range(4)]
    mixed = [sequences[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert assign_to_ranks(mixed, 2, is_balanced=True) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_a_common_beginning_is_work_only_once():
    """Four samples of 110 tokens that share 100 are 140 tokens of work, less than three others of 50."""
    group = [[1] * 100 + [n] * 10 for n in range(2, 6)]
    others = [[n] * 50 for n in range(6, 9)]
    assert assign_to_ranks(group + others, 2, is_balanced=True) == [[0, 1, 2, 3], [4, 5, 6]]
    assert assign_to_ranks([[7] * 60] * 3, 2, is_balanced=True) == [[0], [1, 2]], "equal samples, too"


def test_groups_keep_their_numbers_and_tags_on_every_rank(tmp_path):
    groups = [(0, "Bandit"), (3, "Bandit"), (5, "FrozenLake")]
    environments = part_of_environments(small_config(tmp_path), groups, 2)
    assert [(seat.group_id, seat.tag, seat.member) for seat in environments.seats] == [
        (number, tag, member) for number, tag in groups for member in range(2)
    ]
    assert [seat.seed for seat in environments.reset(100)] == [100, 100, 103, 103, 105, 105]
    environments.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("trainer.n_gpus_per_node=2", "n_gpus_per_node=2"),
        ("critic.fsdp_config.offload_policy=True", r"offload_policy=True \(critic\)"),
    ],
)
def test_without_ray_models_in_parts_are_refused_before_anything_starts(change, named, tmp_path, monkeypatch):
    monkeypatch.setattr("ragen.trainer.start.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf"{named}.*pip install -e '\.\[ray\]'"):
        plan_start(small_config(tmp_path / "run", change))
    assert not (tmp_path / "run").exists()


def test_the_offload_keys_of_other_code_bases_name_ours(tmp_path):
    with pytest.raises(ConfigError, match=r"actor\.fsdp_config\.offload_policy=True moves weights"):
        small_config(tmp_path, "actor_rollout_ref.actor.fsdp_config.param_offload=True")


def test_the_watchdog_says_who_holds_up_whom():
    watch = Watch(notes=[("update_actor", 5), ("update_actor", 3), (IDLE, 0)], moved=[7.0, 4.0, 9.0])
    first, second, third = watch.describe_waiting(10.0).splitlines()
    assert first == "  worker 0: update_actor, 5 pieces done, no news for 3 s, waits for others"
    assert second == "  worker 1: update_actor, 3 pieces done, no news for 6 s, holds up the others"
    assert third.endswith("has finished")
    even = Watch(notes=[("save", 0), ("save", 0)], moved=[0.0, 0.0])
    assert even.describe_waiting(1.0).count("is as far as all others") == 2
