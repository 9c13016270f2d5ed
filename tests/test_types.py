"""The records that cross module borders add up what they hold."""

from ragen.types import Episode, Status, Turn, group_episodes


def turn(reward: float = 0.0, penalty: float = 0.0, executed: tuple[str, ...] = ()) -> Turn:
    return Turn(
        user="u",
        prompt_ids=[],
        response_ids=[1, 2],
        logprobs=[],
        text="t",
        stop_reason="stop",
        reward=reward,
        penalty=penalty,
        executed=list(executed),
    )


def episode(*turns: Turn, group: int = 0, status: Status = Status.FAILED) -> Episode:
    return Episode(tag="A", env_type="", group_id=group, member=0, seed=0, system="s", turns=list(turns), status=status)


def test_an_episode_sums_its_turns():
    played = episode(turn(1.0, executed=("Up", "Up")), turn(2.0, -0.5, executed=("Down",)))
    assert (played.reward, played.penalty, played.score, played.num_actions) == (3.0, -0.5, 2.5, 3)


def test_an_episode_begins_as_ongoing():
    assert Episode(tag="A", env_type="", group_id=0, member=0, seed=0).status is Status.ONGOING


def test_a_conversation_alternates_behind_its_system_message():
    assert [message["role"] for message in episode(turn(), turn()).messages()] == ["system", *["user", "assistant"] * 2]


def test_faults_are_those_of_the_machinery():
    assert {status for status in Status if status.is_fault} == {
        Status.ENV_ERROR,
        Status.ENV_TIMEOUT,
        Status.ENGINE_ERROR,
    }


def test_episodes_are_grouped_in_the_order_of_their_first():
    groups = group_episodes([episode(group=7), episode(group=3), episode(group=7)])
    assert [(group.group_id, len(group.episodes)) for group in groups] == [(7, 2), (3, 1)]


def test_a_group_is_complete_when_every_member_replied_and_none_was_lost():
    [whole] = group_episodes([episode(turn()), episode(turn(), status=Status.SOLVED)])
    [silent] = group_episodes([episode(turn()), episode()])
    [faulty] = group_episodes([episode(turn()), episode(turn(), status=Status.ENV_TIMEOUT)])
    assert (whole.is_complete, silent.is_complete, faulty.is_complete) == (True, False, False)


def test_entropies_are_known_for_every_token_or_not_at_all():
    known, unknown = turn(), turn()
    known.entropies = [0.1, 0.2]
    assert known.has_entropies and not unknown.has_entropies
