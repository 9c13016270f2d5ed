"""Parts of one's own, as a user writes them beside a program: the tests name them by path."""

import torch

import ragen
from ragen.algorithms.losses import ppo


def loo(token_rewards, mask, groups):
    """Each row's return, less the mean of the other rows of its group."""
    returns = token_rewards.sum(-1)
    same = (groups[:, None] == groups[None, :]).float()
    others = (same @ returns - returns) / (same.sum(-1) - 1).clamp(min=1)
    advantages = (returns - others).unsqueeze(-1) * mask
    return advantages, advantages


@ragen.needs("values")
def above_values(token_rewards, mask, values):
    """What a row earned, less the value of each of its tokens."""
    returns = token_rewards.sum(-1, keepdim=True) * mask
    return (returns - values) * mask, returns


def undeclared(token_rewards, mask, values):
    return token_rewards, token_rewards


def misspelt(token_reward, mask):
    return mask, mask


def flat(token_rewards, mask):
    return token_rewards.sum(-1), token_rewards.sum(-1)


def raising(token_rewards, mask):
    return 1 / 0


def my_loss(x):
    """PPO's, under a name of one's own."""
    return ppo(x)


def reinforce(x):
    return -x.advantages * x.logprobs, {"weight": torch.ones_like(x.mask)}


def no_gradient(x):
    return -x.advantages, {}


def mean_loss(x):
    return (-x.advantages * x.logprobs).mean(), {}


def keep_all(group_scores, settings, *, num_groups):
    """Every group."""
    return range(len(group_scores))


def keep_twice(group_scores, settings, *, num_groups):
    return [0, 0]


def keep_names(group_scores, settings, *, num_groups):
    return ["first"]


def keep_wrongly(group_scores):
    return []


def half_reward(episode):
    """Half of what the environment gave."""
    return episode.reward / 2


def tiring(episode):
    """Every action costs."""
    return episode.reward - 0.5 * episode.num_actions


def no_reward():
    return 0.0


def bad_reward(episode):
    return float("nan")


def lengths(episodes):
    """The longest and the mean reply, in tokens."""
    tokens = [len(turn.response_ids) for episode in episodes for turn in episode.turns]
    return {"longest_reply": max(tokens), "mean_reply": sum(tokens) / len(tokens)}


def bad_metrics(episodes):
    return {"two words": 1.0}


class Counter(ragen.TextEnv):
    """Say the number of the level."""

    def reset(self, seed, member=0):
        self.text, self.wanted = f"Say {seed % 5}.", str(seed % 5)
        return self.text

    def step(self, action):
        is_right = action.strip() == self.wanted
        info = ragen.step_info(is_valid=True, is_effective=True, is_success=is_right)
        return ragen.StepResult(observation=self.text, reward=float(is_right), terminated=True, info=info)

    def render(self):
        return self.text


class Broken(Counter):
    def reset(self, seed, member=0):
        raise OSError("no board today")


class Mute(Counter):
    """Does not say whether the level is solved."""

    def step(self, action):
        return ragen.StepResult(observation=self.text, reward=1.0, terminated=True)


class Loud(Counter):
    """Takes its generator for Python's."""

    def sample_text(self, rng):
        return str(rng.randint(0, 9))


def install_points(folder, points):
    """What an installer writes of a package `own-parts` with these estimators."""
    info = folder / "own_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text("[ragen.estimators]\n" + "".join(lines))


COUNTER = {
    "env_type": "tests.api.own:Counter",
    "max_actions_per_traj": 1,
    "env_instruction": "Say the number.",
    "max_tokens": 20,
}
"""A row of custom_envs."""
