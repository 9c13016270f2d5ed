"""Rollouts: sampled tokens per second of our engine beside transformers.generate and TRL, in one run.

    python benchmarks/rollout.py --size 0.5M
    python benchmarks/rollout.py --size 50M
    python benchmarks/rollout.py --size qwen2.5-0.5B --device cuda

Everyone plays the same Sokoban levels for the same number of turns with the same model. Its weights are random, so
no reply holds an action and no episode ends early; every reply has exactly --reply-tokens tokens. The contenders:

    ours      AgentProxy and NativeEngine: caches kept across turns, a group's first prompt computed once
    generate  the same AgentProxy, replies from transformers.generate: all episodes in one left-padded batch, the
              whole conversation computed again at every turn
    trl       GRPOTrainer with environment_factory, its own multi-turn loop over transformers.generate. Timed is
              `_generate` alone; resetting environments, rewards and the update are not.

Ours also returns log-probs, which the others do not. Contenders take turns; times are medians over the rounds after
one that is not counted, and a ratio is the median of the rounds' own ratios. TRL wants an environment of its own:

    python -m venv /tmp/trl
    /tmp/trl/bin/pip install torch==2.13.0 transformers==5.17.0 trl==1.16.0 accelerate datasets hydra-core numpy rich
    PYTHONPATH=. /tmp/trl/bin/python benchmarks/rollout.py --size 0.5M
"""

from __future__ import annotations

import ragen  # isort: skip  # noqa: F401  (before torch: it makes OpenMP's waiting threads sleep)

import argparse
import copy
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

from ragen.config import load_config
from ragen.config.schema import Config
from ragen.engine.base import Completion, Engine, Request, SamplingParams, StopReason
from ragen.engine.native.build import native_engine
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import build_chat, build_proxy
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import EsManager, PendingTurn, levels_from, play_in_order
from ragen.llm_agent.parsing import parse_reply
from ragen.llm_agent.prompts import system_message, user_message
from ragen.modeling.load import load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.types import Turn

BASE_SEED = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A Qwen2 shape, and how many episodes are played with it."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocab: int
    """0: as many as the tokenizer of the embedded models has."""
    num_episodes: int


SIZES = {
    "0.5M": Size(hidden=96, layers=4, heads=3, kv_heads=3, mlp=256, vocab=0, num_episodes=64),
    "50M": Size(hidden=512, layers=8, heads=8, kv_heads=8, mlp=2048, vocab=32_000, num_episodes=16),
    "qwen2.5-0.5B": Size(hidden=896, layers=24, heads=14, kv_heads=2, mlp=4864, vocab=151_936, num_episodes=128),
    "qwen2.5-3B": Size(hidden=2048, layers=36, heads=16, kv_heads=2, mlp=11_008, vocab=151_936, num_episodes=128),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What all contenders share."""

    config: Config
    tokenizer: Any
    chat: Chat
    model: Any
    environments: EsManager
    reply_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """One rollout, measured."""

    seconds: float
    cpu_seconds: float
    """Of all threads of this process: hardly changed by other work on the machine."""
    num_prefilled: int
    """Prompt tokens that went through the model, padding not counted."""
    num_sampled: int


# --- the contenders: a function that makes whatever lasts, and returns one that plays a round


def prepare_ours(setup: Setup) -> Callable[[], Played]:
    rollout = setup.config.actor_rollout_ref.rollout
    engine = native_engine(
        setup.model,
        setup.tokenizer,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )

    def play() -> Played:
        engine.end_rollout()  # as after every update: the cache starts small and grows within the measured time
        return play_with_engine(setup, engine)

    return play


def prepare_generate(setup: Setup) -> Callable[[], Played]:
    return partial(play_with_engine, setup, GenerateEngine(setup.model, setup.tokenizer.pad_token_id))


def play_with_engine(setup: Setup, engine: Any) -> Played:
    proxy = build_proxy(setup.config, engine, setup.chat)
    prefilled_before = engine.num_prefilled
    started, cpu_started = time.perf_counter(), time.process_time()
    levels = levels_from(BASE_SEED, setup.environments.num_groups)
    plan = RolloutPlan(levels=levels, noise_seed=0, params=SamplingParams(max_tokens=setup.reply_tokens))
    episodes = proxy.rollout(setup.environments, plan)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Played(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        num_prefilled=engine.num_prefilled - prefilled_before,
        num_sampled=sum(len(turn.response_ids) for episode in episodes for turn in episode.turns),
    )


class GenerateEngine(Engine):
    """Replies from transformers.generate: all waiting requests in one left-padded batch, contexts computed anew."""

    def __init__(self, model: Any, pad_id: int) -> None:
        self.model, self.pad_id = model, pad_id
        self.waiting: list[Request] = []
        self.num_prefilled = 0

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        requests, self.waiting = self.waiting, []
        width = max(len(request.prompt_ids) for request in requests)
        ids = torch.full((len(requests), width), self.pad_id)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            self.num_prefilled += len(request.prompt_ids)
            ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        config = GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=requests[0].params.max_tokens, pad_token_id=self.pad_id
        )
        device = self.model.device
        output = self.model.generate(ids.to(device), attention_mask=mask.to(device), generation_config=config)
        return [
            Completion(session=request.session, token_ids=reply, stop_reason=StopReason.LENGTH)
            for request, reply in zip(requests, output[:, width:].tolist(), strict=True)
        ]

    def close(self) -> None:
        self.waiting.clear()


TRL_TEMPLATE = (
    "{% for message in messages %}{{ '' if loop.first else '\n' }}<|im_start|>"
    "{{ 'user' if message.role == 'tool' else message.role }}\n"
    "{{ '<think>' if message.role == 'assistant' }}{{ message.content }}{{ message.tool_calls or '' }}<|im_end|>"
    "{% endfor %}{{ '\n<|im_start|>assistant\n<think>' if add_generation_prompt }}"
)
"""Our prompts, with observations in tool messages: TRL knows environments as tools only."""


def prepare_trl(setup: Setup) -> Callable[[], Played] | None:
    """None where TRL is not installed."""
    try:
        import trl.trainer.grpo_trainer as grpo
        from datasets import Dataset
    except ImportError:
        return None

    agent, seats = setup.config.agent_proxy, setup.environments.seats

    class Environment:
        """A seat as TRL wants it: what `reset` returns ends the prompt, `act` is the tool."""

        def reset(self, seat: int, **_: Any) -> str:
            self.seat, self.turns = seats[seat], []
            self.seat.reset(BASE_SEED + self.seat.group_id)
            return user_message(self.seat, [], agent)

        def act(self, reply: str) -> str:
            """Do what a reply says.

            Args:
                reply: The whole reply.
            """
            parsed = parse_reply(
                reply, enable_think=True, action_sep=agent.action_sep, max_actions=agent.max_actions_per_turn
            )
            turn = Turn(user="", prompt_ids=[], response_ids=[], logprobs=[], text=reply, stop_reason="")
            turn.actions = parsed.actions
            pending = PendingTurn(self.seat, turn)
            play_in_order([pending])
            pending.finish()
            self.turns.append(turn)
            return user_message(self.seat, self.turns, agent)

    def call_act(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
        """TRL stops at a reply without a tool call; here every reply is one."""
        text = tokenizer.decode(ids)
        call = {"type": "function", "function": {"name": "act", "arguments": {"reply": text}}}
        return {"role": "assistant", "content": text, "tool_calls": [call]}

    class Trainer(grpo.GRPOTrainer):
        num_prefilled = num_sampled = 0
        seconds = cpu_seconds = 0.0

        def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
            self.num_prefilled += sum(map(len, prompt_ids))
            completion_ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            self.num_sampled += sum(map(len, completion_ids))
            return completion_ids, logprobs

        def _generate(self, prompts: list[Any]) -> Any:
            started, cpu_started = time.perf_counter(), time.process_time()
            result = super()._generate(prompts)
            self.seconds, self.cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
            return result

    for seat in setup.environments.reset(levels_from(BASE_SEED, setup.environments.num_groups)):
        assert not seat.error, seat.error
    rows = []
    for index, seat in enumerate(seats):
        system = system_message(seat, agent)
        prompt = [{"role": "system", "content": system}, {"role": "user", "content": ""}]
        rows.append({"prompt": prompt, "seat": index})
    grpo.parse_response = call_act
    tokenizer = copy.deepcopy(setup.tokenizer)
    tokenizer.chat_template, tokenizer.response_template = TRL_TEMPLATE, {}
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=setup.model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=grpo.GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=len(seats),
                num_generations=setup.environments.group_size,
                max_completion_length=setup.config.actor_rollout_ref.rollout.max_model_len,
                max_tool_calling_iterations=agent.max_turn - 1,
                # An end token would cut a reply short.
                generation_kwargs={
                    "max_new_tokens": setup.reply_tokens,
                    "suppress_tokens": [tokenizer.eos_token_id],
                },
                gradient_checkpointing=False,
                bf16=False,  # the model already is, where it should be
                use_cpu=setup.model.device.type == "cpu",
                report_to=[],
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            environment_factory=Environment,
        )

    def play() -> Played:
        trainer.num_prefilled = trainer.num_sampled = 0
        trainer._generate_and_score_completions(rows)
        return Played(
            seconds=trainer.seconds,
            cpu_seconds=trainer.cpu_seconds,
            num_prefilled=trainer.num_prefilled,
            num_sampled=trainer.num_sampled,
        )

    return play


CONTENDERS = {"ours": prepare_ours, "generate": prepare_generate, "trl": prepare_trl}


# --- the measurement


def build_setup(args: argparse.Namespace) -> Setup:
    size = SIZES[args.size]
    num_groups = (args.episodes or size.num_episodes) // args.group_size
    config = load_config(
        "_2_sokoban",
        [
            "model_path=tiny",
            f"es_manager.train.env_groups={num_groups}",
            f"es_manager.train.group_size={args.group_size}",
            "ppo_mini_batch_size=1",
            f"agent_proxy.max_turn={args.turns}",
            f"actor_rollout_ref.rollout.response_length={args.reply_tokens}",
        ],
    )
    tokenizer = load_tokenizer(resolve_model("tiny", env_types=["sokoban"]))
    return Setup(
        config=config,
        tokenizer=tokenizer,
        chat=build_chat(config, tokenizer),
        model=build_model(size, tokenizer, args.device),
        environments=EsManager(config.es_manager.train, config.custom_envs),
        reply_tokens=args.reply_tokens,
    )


def build_model(size: Size, tokenizer: Any, device: str) -> Any:
    """Random weights: float32 on a CPU, bfloat16 on a GPU."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=size.vocab or len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.device(device):
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def measure(contenders: dict[str, Callable[[], Played]], repeats: int) -> dict[str, list[Played]]:
    """`repeats` rounds after an uncounted one; the contenders take turns within a round."""
    rounds: dict[str, list[Played]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        for name, play in contenders.items():
            played = play()
            if number:
                rounds[name].append(played)
    return rounds


def print_table(rounds: dict[str, list[Played]], num_episodes: int) -> None:
    print(f"{'':<10}{'prefilled':>10}{'sampled':>9}{'seconds':>9}{'tokens/s':>10}{'episodes/s':>12}", end="")
    print(f"{'x generate':>12}{'in CPU time':>13}")
    base = rounds.get("generate", [])
    for name, played in rounds.items():
        seconds = statistics.median(one.seconds for one in played)
        sampled = played[-1].num_sampled
        row = f"{name:<10}{played[-1].num_prefilled:>10}{sampled:>9}{seconds:>9.2f}{sampled / seconds:>10.0f}"
        row += f"{num_episodes / seconds:>12.2f}"
        if base:
            pairs = list(zip(base, played, strict=True))
            row += f"{statistics.median(theirs.seconds / one.seconds for theirs, one in pairs):>12.2f}"
            row += f"{statistics.median(theirs.cpu_seconds / one.cpu_seconds for theirs, one in pairs):>13.2f}"
        print(row)


def machine(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="0.5M")
    parser.add_argument("--episodes", type=int, help="default: 64 (0.5M), 16 (50M), 128 (others)")
    parser.add_argument("--group-size", type=int, default=8, help="episodes that share a level")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reply-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    setup = build_setup(args)
    num_episodes = len(setup.environments.seats)
    print(
        f"{machine(args.device)}; torch {torch.__version__}, transformers {transformers.__version__}\n"
        f"{args.size}: {setup.model.num_parameters() / 1e6:.1f}M parameters, {num_episodes} episodes of {args.turns} "
        f"turns in groups of {args.group_size}, {args.reply_tokens} tokens a reply; median of {args.repeats} rounds",
        flush=True,
    )
    contenders = {name: CONTENDERS[name](setup) for name in args.contenders}
    for name in [name for name, play in contenders.items() if play is None]:
        print(f"{name} is not installed; the docstring says how to get it.")
        del contenders[name]
    print_table(measure(contenders, args.repeats), num_episodes)


if __name__ == "__main__":
    main()
