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
from ragen.trainer.memory import cache_rows, check_memory
from ragen.workers.actor import Actor
from ragen.workers.critic import Critic
from ragen.workers.local import LocalWorkers
from ragen.workers.lora import add_adapter
from ragen.workers.reference import Reference


def build_trainer(config: Config, *, device: str | None = None) -> AgentTrainer | None:
    """A trainer ready to fit; None when the run is finished already."""
    trainer = config.trainer
    check_supported(config)
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
        train_seed=secrets.randbelow(10**6) if train_seed is None else train_seed,
        start_step=start_step,
    )
    if state:
        built.load_state(state)
    return built


def check_supported(config: Config) -> None:
    """Refuse, by name, what the configuration can express and the trainer cannot do."""
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    refused = {
        f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}, nnodes={trainer.nnodes}: training on several devices": (
            trainer.n_gpus_per_node * trainer.nnodes > 1
        ),
        "trainer.gradient_analysis_only=True: gradient analysis": trainer.gradient_analysis_only,
        "trainer.exit_after_gradient_analysis=True: gradient analysis": trainer.exit_after_gradient_analysis,
        f"actor_rollout_ref.rollout.name={rollout.name}: training with that engine": rollout.name != "native",
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise ConfigError(f"{what} is not part of this version. Leave the key at its default.")
    if not rollout.do_sample:
        raise ConfigError("actor_rollout_ref.rollout.do_sample=False: greedy replies do not vary. Set it to True.")


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

    parts, total = config.actor_rollout_ref, config.trainer.total_training_steps
    rollout = parts.rollout
    env_types = sorted({config.custom_envs[tag].env_type for tag in config.es_manager.train.env_configs.tags})
    base = resolve_model(parts.model.path, env_types=env_types)
    print(check_memory(config, base, device), flush=True)
    tokenizer = load_tokenizer(base)
    model = prepare(config, load_model(_weights(config, base, checkpoint, "actor"), device=device, is_trained=True))
    chat = build_chat(config, tokenizer)
    engine = NativeEngine(
        model,
        tokenizer,
        max_num_seqs=cache_rows(config, model.config, device),
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    agent = Agent(proxy=build_proxy(config, engine, chat), engine=engine, chat=chat, model=model)
    reference = build_reference(config, model, base, device) if config.uses_reference else None
    actor = Actor(model, parts.actor, temperature=rollout.temperature, total_steps=total, reference=reference)
    critic = None
    if config.uses_critic:
        critic_base = resolve_model(config.critic.model.path, env_types=env_types)
        value_model = load_value_model(_weights(config, critic_base, checkpoint, "critic"), device=device)
        critic = Critic(prepare(config, value_model, is_critic=True), config.critic, total_steps=total)
    workers = LocalWorkers(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)
    if checkpoint:
        workers.load(checkpoint, with_optimizers=read_state(checkpoint) is not None)
    return workers


def _weights(config: Config, base: Path | str, checkpoint: Path | None, role: str) -> Path | str:
    """Where a role's weights are. Adapters are added to the base model, so there the base is loaded."""
    return base if checkpoint is None or config.lora.rank > 0 else checkpoint / role


def prepare(config: Config, model: Any, *, is_critic: bool = False) -> Any:
    """Adapters and gradient checkpointing, as configured."""
    if config.lora.rank > 0:
        add_adapter(model, config.lora, trained_heads=("score", "classifier") if is_critic else ())
    source = config.critic.model if is_critic else config.actor_rollout_ref.model
    if source.enable_gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def build_reference(config: Config, actor_model: Any, base: Path | str, device: str) -> Reference:
    """The initial policy: a second model, or the actor's own without its adapter."""
    if config.lora.rank > 0:
        return Reference(actor_model, is_adapter_off=True)
    return Reference(load_model(base, device=device).requires_grad_(False))
