"""Tasks that may be answered several times: the right answer ends the episode, and so does the last one.

Tested in tests/env/test_countdown_env.py, tests/env/test_guess_number_env.py and tests/env/test_sudoku_env.py.
"""

from __future__ import annotations

from ragen.env.base import StartedEnv, StepResult, step_info


class AttemptsEnv(StartedEnv):
    """A subclass has a `step` that begins with `count_step` and returns `result`; its config has `max_steps`."""

    num_steps: int
    """Answers so far; `reset` sets it to 0."""
    is_solved: bool

    @property
    def is_done(self) -> bool:
        return self.is_solved or self.num_steps >= self.config.max_steps

    def count_step(self) -> None:
        assert not self.is_done, "the episode is over: call reset"
        self.num_steps += 1

    def result(self, *, reward: float, is_valid: bool, is_effective: bool) -> StepResult:
        """How the task stands after an answer."""
        return StepResult(
            observation=self.render(),
            reward=reward,
            terminated=self.is_solved,
            truncated=self.is_done and not self.is_solved,
            info=step_info(is_valid=is_valid, is_effective=is_effective, is_success=self.is_solved),
        )
