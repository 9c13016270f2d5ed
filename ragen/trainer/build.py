"""From a configuration to a trainer, from scratch or from a checkpoint."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen.config.load import to_dict
from ragen.config.schema import Config
from ragen.config.show import to_yaml
from ragen.errors import ConfigError
from ragen.llm_agent.build import Agent, build_chat, build_proxy
from ragen.models.load import default_device, load_model, load_tokenizer, load_value_model
from ragen.models.resolve import resolve_model
from ragen.tracking.rundir import RunDir
from ragen.tracking.tracker import Trackers, check_names
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.checkpoint import find_resume, read_state, step_of
from ragen.workers.actor import Actor
from ragen.workers.critic import Critic
from ragen.workers.local import LocalWorkers


def build_trainer(config: Config, *, device: str | None = None) -> AgentTrainer | None:
    """A trainer ready to fit; None when the run is finished already."""
    trainer = config.trainer
    check_names(trainer.logger)
    root = Path(trainer.default_local_dir)
    checkpoint = find_resume(trainer.resume_mode, trainer.resume_from_path, root)
    start_step = step_of(checkpoint) if checkpoint else 0
    state = read_state(checkpoint) if checkpoint else None
    if checkpoint:
        check_checkpoint(config, checkpoint, state)
        if start_step >= trainer.total_training_steps and not (trainer.gradient_analysis_only or trainer.val_only):
            print(
                f"{root} is finished: step {start_step} of {trainer.total_training_steps}. Nothing to do; raise "
                "trainer.total_training_steps to go on, or set trainer.resume_mode=disable to start over."
            )
            return None
    workers = build_workers(config, checkpoint, device=device or default_device())
    train_seed = state["train_seed"] if state else config.seed.train
    run = RunDir(root)
    run.write_config(to_yaml(config))
    trackers = Trackers(
        trainer.logger,
        config=to_dict(config),
        run_dir=run,
        project=trainer.project_name,
        experiment=trainer.experiment_name,
        total_steps=trainer.total_training_steps,
        resumed_step=start_step if checkpoint else None,
    )
    built = AgentTrainer(
        config,
        workers,
        trackers=trackers,
        run=run,
        train_seed=secrets.randbelow(10**6) if train_seed is None else train_seed,
        start_step=start_step,
    )
    if state:
        built.load_state(state)
    return built


def check_checkpoint(config: Config, checkpoint: Path, state: Mapping[str, Any] | None) -> None:
    """Refuse to go on from a checkpoint that cannot be gone on from."""
    if state is None:
        if not (config.trainer.gradient_analysis_only or config.trainer.val_only):
            raise ConfigError(
                f"{checkpoint} holds weights only (checkpoint.save_contents=[model]), so training cannot continue from "
                "it. Probe it with trainer.gradient_analysis_only=True, evaluate it with `ragen eval`, or start over "
                "with trainer.resume_mode=disable."
            )
        return
    if state["model_path"] != config.model_path:
        raise ConfigError(
            f"{checkpoint} was trained from model_path={state['model_path']}, this run asks for {config.model_path}. "
            "Give the run another trainer.experiment_name, or set trainer.resume_mode=disable to start over."
        )


def build_workers(config: Config, checkpoint: Path | None, *, device: str) -> LocalWorkers:
    """Models, optimizers and engine on one device."""
    from ragen.engine.native import NativeEngine

    parts, rollout, total = config.actor_rollout_ref, config.actor_rollout_ref.rollout, config.trainer.total_training_steps
    if rollout.name != "native":
        raise ConfigError(f"actor_rollout_ref.rollout.name={rollout.name} cannot train. Use native.")
    if rollout.do_sample is False:
        raise ConfigError("actor_rollout_ref.rollout.do_sample=False: greedy replies do not vary. Set it to True.")
    env_types = sorted({config.custom_envs[tag].env_type for tag in config.es_manager.train.env_configs.tags})
    base = resolve_model(parts.model.path, env_types=env_types)
    path = checkpoint / "actor" if checkpoint else base
    tokenizer = load_tokenizer(path)
    model = load_model(path, device=device, is_trained=True)
    if parts.model.enable_gradient_checkpointing:
        enable_checkpointing(model)
    chat = build_chat(config, tokenizer)
    engine = NativeEngine(
        model,
        tokenizer,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    agent = Agent(proxy=build_proxy(config, engine, chat), engine=engine, chat=chat, model=model)
    actor = Actor(model, parts.actor, temperature=rollout.temperature, total_steps=total)
    critic = None
    if config.uses_critic:
        critic_base = resolve_model(config.critic.model.path, env_types=env_types)
        value_model = load_value_model(checkpoint / "critic" if checkpoint else critic_base, device=device)
        if config.critic.model.enable_gradient_checkpointing:
            enable_checkpointing(value_model)
        critic = Critic(value_model, config.critic, total_steps=total)
    reference = load_model(base, device=device).requires_grad_(False) if config.uses_reference else None
    workers = LocalWorkers(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)
    if checkpoint and read_state(checkpoint) is not None:
        workers.load_optimizers(checkpoint)
    return workers


def enable_checkpointing(model: Any) -> None:
    """Recompute activations in the backward pass."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
