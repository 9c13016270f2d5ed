"""TRL's GRPO step on the episodes of train_step.py, which runs this with --trl-python in TRL's own environment.

    echo | PYTHONPATH=. /tmp/trl/bin/python benchmarks/trl_step.py '{"config_name": "quickstart", ...}'

Each line on standard input asks for one step; each is answered by a line of JSON with what it took. Between the two
the process sleeps, so that the contenders of train_step.py can take turns.

Prompts, environments and the loop over turns are ours; replies come from TRL's own call of transformers.generate, all
waiting episodes in one left-padded batch, the conversation computed again every turn. That is also what TRL's loop
behind `environment_factory` does (benchmarks/rollout.py times it: no faster), but its replies must be tool calls and
end at one token. Scores, advantages and the update are TRL's.
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import json
import os
import resource
import sys
import tempfile
import time
from typing import Any, TextIO

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ragen.config import load_config
from ragen.config.schema import Config
from ragen.engine.base import Completion, Engine, Request, StopReason
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import build_chat, build_proxy, sampling_params
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.ctx_manager import to_samples
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model


class TrlEngine(Engine):
    """Replies from TRL's generation, for all waiting requests at once."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer = trainer
        self.waiting: list[Request] = []

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    def step(self) -> list[Completion]:
        requests, self.waiting = self.waiting, []
        prompts = [request.prompt_ids for request in requests]
        replies, _ = self.trainer._generate_single_turn(prompts, None, {}, 1)
        return [
            Completion(session=request.session, token_ids=reply, stop_reason=StopReason.STOP_TOKEN)
            for request, reply in zip(requests, replies, strict=True)
        ]

    def close(self) -> None:
        self.waiting.clear()


class Rollout:
    """TRL's `rollout_func`: the levels that our trainer plays at the same step."""

    def __init__(self, config: Config, chat: Chat) -> None:
        self.config, self.chat = config, chat
        self.environments = EsManager(config.es_manager.train, config.custom_envs)
        self.step = self.num_tokens = self.num_sampled = 0

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, list[Any] | None]:
        config, environments = self.config, self.environments
        assert len(prompts) == len(environments.seats) and config.seed.train is not None
        base_seed = config.seed.train + self.step * environments.num_groups
        plan = RolloutPlan(
            levels=levels_from(base_seed, environments.num_groups),
            noise_seed=0,
            params=sampling_params(config, self.chat, is_validation=False),
        )
        episodes = build_proxy(config, TrlEngine(trainer), self.chat).rollout(environments, plan)
        self.step += 1
        scores = [episode.score for episode in episodes]
        samples = to_samples(episodes, scores, is_full_context=True, use_turn_scores=False)
        self.num_tokens = sum(len(sample.input_ids) for sample in samples)
        self.num_sampled = sum(sum(sample.loss_mask) for sample in samples)
        starts = [sample.turn_spans[0][0] for sample in samples]
        return {
            "prompt_ids": [sample.input_ids[:start] for sample, start in zip(samples, starts, strict=True)],
            "completion_ids": [sample.input_ids[start:] for sample, start in zip(samples, starts, strict=True)],
            "env_mask": [sample.loss_mask[start:] for sample, start in zip(samples, starts, strict=True)],
            "logprobs": None,
            "score": scores,
        }


class Trainer(GRPOTrainer):
    """Waits before every step until it is asked for, and notes when its parts were done."""

    times: dict[str, float]
    cpu_started = 0.0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not sys.stdin.readline():
            raise SystemExit
        self.cpu_started, self.times = time.process_time(), {"start": time.perf_counter()}
        result = super()._generate_and_score_completions(inputs)
        self.times["score"] = time.perf_counter()
        return result

    def _generate(self, prompts: list[Any]) -> Any:
        result = super()._generate(prompts)
        self.times["gen"] = time.perf_counter()
        return result


class Reporter(TrainerCallback):
    """Answers after the last optimizer step of each training step."""

    def __init__(self, trainer: Trainer, rollout: Rollout, num_updates: int, answers: TextIO) -> None:
        self.trainer, self.rollout, self.num_updates, self.answers = trainer, rollout, num_updates, answers

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.num_updates:
            return
        times, now = self.trainer.times, time.perf_counter()
        answer = {
            "seconds": {
                "gen": times["gen"] - times["start"],
                "score": times["score"] - times["gen"],
                "update": now - times["score"],
                "step": now - times["start"],
            },
            "cpu_seconds": time.process_time() - self.trainer.cpu_started,
            "num_tokens": self.rollout.num_tokens,
            "num_sampled": self.rollout.num_sampled,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        print(json.dumps(answer), file=self.answers, flush=True)


def build_trainer(config: Config, folder: str, answers: TextIO) -> Trainer:
    """The same model, batches, losses and optimizer as ours, in TRL's terms."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    num_groups, group_size = config.es_manager.train.env_groups, config.es_manager.train.group_size
    num_episodes, mini, micro = num_groups * group_size, actor.ppo_mini_batch_size, actor.ppo_micro_batch_size_per_gpu
    assert num_episodes % mini == 0 and mini % micro == 0, "TRL wants whole micro and mini batches"
    path = resolve_model(
        config.actor_rollout_ref.model.path,
        env_types=[config.custom_envs[tag].env_type for tag in config.es_manager.train.env_configs.tags],
    )
    model, tokenizer = load_model(path, device="cpu", is_trained=True), load_tokenizer(path)
    chat = build_chat(config, tokenizer)
    # Ours stops at these texts; in the embedded tokenizers each is one token.
    ends = [tokenizer.convert_tokens_to_ids(text) for text in rollout.stop_strings]
    assert None not in ends, rollout.stop_strings
    model.generation_config.eos_token_id = [*chat.stop_token_ids, *ends]
    play = Rollout(config, chat)
    trainer = Trainer(
        model=model,
        reward_funcs=lambda completions, score, **_: score,
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=mini // micro,
            steps_per_generation=num_episodes // micro,
            num_generations=group_size,
            max_completion_length=rollout.max_model_len,
            generation_kwargs={"max_new_tokens": rollout.response_length},
            temperature=rollout.temperature,
            beta=actor.kl_loss_coef,
            epsilon=actor.clip_ratio_low,
            epsilon_high=actor.clip_ratio_high,
            entropy_coef=actor.entropy_coeff,
            learning_rate=actor.optim.lr,
            adam_beta2=actor.optim.betas[1],
            weight_decay=actor.optim.weight_decay,
            max_grad_norm=actor.grad_clip,
            lr_scheduler_type="constant",
            max_steps=10**6,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            report_to=[],
        ),
        # Rollouts know their levels by the step; the rows only say how many there are.
        train_dataset=Dataset.from_list([{"prompt": "play"}] * num_groups * 64),
        processing_class=tokenizer,
        rollout_func=play,
    )
    trainer.add_callback(Reporter(trainer, play, num_episodes // mini, answers))
    return trainer


def main() -> None:
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TRL prints must not mix with the answers
    torch.set_num_threads(settings["threads"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(load_config(settings["config_name"], settings["overrides"]), folder, answers)
        print("ready", file=answers, flush=True)
        trainer.train()


if __name__ == "__main__":
    main()
