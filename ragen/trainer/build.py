"""From a configuration to a trainer, from scratch or from a checkpoint."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragen.config.schema import Config
from ragen.config.seeds import first_clear_seed, training_levels, validation_levels
from ragen.config.show import to_yaml
from ragen.engine.base import ModelSource
from ragen.learners.actor import Actor
from ragen.learners.critic import Critic
from ragen.learners.reference import Reference
from ragen.llm_agent.build import agent_with
from ragen.modeling.families import family_of
from ragen.modeling.fused_layers import unfused_reason
from ragen.modeling.load import default_device, load_model, load_tokenizer, load_value_model
from ragen.modeling.lora import add_adapter, has_adapter, load_adapter
from ragen.modeling.self_test import check_trainable
from ragen.modeling.team import SOLO, Team
from ragen.seeding import fixed_hash
from ragen.tracking.console import waiting
from ragen.tracking.crash_watch import CrashWatch
from ragen.tracking.lock import run_lock
from ragen.tracking.rundir import RunDir
from ragen.tracking.tracker import Trackers
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.checkpoints.checksums import verify
from ragen.trainer.held_out import levels_behind
from ragen.trainer.starting.folder import take_over
from ragen.trainer.starting.memory import cache_rows, check_memory, memory_advice
from ragen.trainer.starting.start import Start, origin, plan_start
from ragen.workers.base import Workers
from ragen.workers.local import LocalWorkers

if TYPE_CHECKING:
    from ragen.distributed.ranks import Ranks
    from ragen.distributed.team import Rank

Role = Literal["actor", "critic"]


def build_trainer(config: Config, *, device: str | None = None, ranks: Ranks | None = None) -> AgentTrainer | None:
    """A trainer ready to fit; None when the run is finished already. `ranks` are used instead of new processes.

    The folder of the run is locked until the trainer has been fitted.
    """
    with ExitStack() as held:
        root = Path(config.trainer.default_local_dir)
        if not config.trainer.val_only:
            held.enter_context(run_lock(root))
        start = plan_start(config)
        if start.checkpoint and not start.is_over:
            verify(start.checkpoint)
        for note in start.notes:
            print(note, flush=True)
        if start.is_over:
            return None
        if config.trainer.val_only:
            # What the run itself logged stays as it is, and it may still be training.
            root = root / f"validation_of_step_{start.step}" if start.checkpoint else root
            held.enter_context(run_lock(root))
        trainer = _build(
            with_seed(config, start.train_seed), start, root, device=device or default_device(), ranks=ranks
        )
        trainer.held.push(held.pop_all())
        return trainer


def _build(config: Config, start: Start, root: Path, *, device: str, ranks: Ranks | None) -> AgentTrainer:
    trainer = config.trainer
    with waiting("Starting Ray and loading models" if config.uses_fsdp else "Loading models"):
        if config.uses_fsdp:
            workers = build_ray_workers(config, start, device=device, ranks=ranks)
        else:
            workers = build_workers(config, start, device=device)
    if aside := take_over(root, start.checkpoint, is_branch=trainer.resume_mode == "resume_path"):
        print(f"Moved what an earlier run left in {root} to {aside}.", flush=True)
    run = RunDir(root)
    run.write_config(to_yaml(config))
    resumed_step = start.step if start.checkpoint else None
    total_steps = trainer.total_training_steps
    trackers = Trackers(config, run, total_steps=total_steps, resumed_step=resumed_step, device=device)
    built = AgentTrainer(config, workers, trackers=trackers, start_step=start.step, origin=origin(config, start))
    if start.state:
        built.checkpoints.load(start.state)
    elif start.checkpoint is not None:
        built.played.is_complete = False
    else:
        built.played.load(levels_behind(start.actor).to_json())
    if config.uses_fsdp:
        built.held.enter_context(CrashWatch(root))
    return built


def with_seed(config: Config, seed: int | None) -> Config:
    """With that training seed, or a drawn one whose levels are not validated on; config.yaml names it."""
    if seed is None:
        seed = first_clear_seed(secrets.randbelow(10**6), len(training_levels(config, 0)), validation_levels(config))
    return replace(config, seed=replace(config.seed, train=seed))


def update_notes(model: Any, device: str) -> list[str]:
    """What updates do slower than they might."""
    reason = unfused_reason(model) if device.startswith("cuda") else ""
    return [f"Updates run without fused layers: {reason}."] if reason else []


def build_ray_workers(config: Config, start: Start, *, device: str, ranks: Ranks | None) -> Workers:
    """Sharded models, one process for each device. This process leaves the devices alone."""
    from ragen.workers.ray import RayWorkers

    # Other processes may work in another folder.
    paths = {name: getattr(start, name) for name in ("actor", "critic", "checkpoint")}
    start = replace(start, **{name: Path(p).absolute() for name, p in paths.items() if p and Path(p).exists()})
    return RayWorkers(
        config,
        partial(build_workers, config, start),
        ranks,
        device=device,
        tokenizer=load_tokenizer(start.actor),
        memory_advice=memory_advice(config, device),
    )


def build_workers(config: Config, start: Start, rank: Rank | None = None, *, device: str | None = None) -> LocalWorkers:
    """Models, optimizers and engine of one process. Those of a rank are sharded, beside a whole policy to play with."""
    parts, total, seed = config.actor_rollout_ref, config.trainer.total_training_steps, train_seed(config)
    device = rank.device if rank else device or default_device()
    is_first = rank is None or rank.number == 0
    memory = check_memory(config, start.actor, device)
    if is_first:
        print(memory, flush=True)
    tokenizer = load_tokenizer(start.actor)
    model = load_trained(config, start.actor, start.checkpoint, "actor", device=device)
    policy = model if rank is None else deepcopy(model).eval()
    source = ModelSource(
        path=start.actor,
        tokenizer=tokenizer,
        policy=policy,
        max_num_seqs=cache_rows(config, model.config, device),
        joins_group=rank is not None,
    )
    agent = agent_with(config, source)
    if is_first:
        for note in [*agent.notes, *update_notes(model, device)]:
            print(note, flush=True)
    team = _shard(config, model, "actor", rank, copy=policy)
    reference = None
    if config.uses_reference and config.lora.rank > 0:  # the actor without its adapter
        reference = Reference(model, is_adapter_off=True, team=team)
    elif config.uses_reference:
        initial = load_model(start.actor, device=device).requires_grad_(False)
        reference = Reference(initial, team=_shard(config, initial, "ref", rank))
    temperature = parts.rollout.temperature
    actor = Actor(
        model, parts.actor, temperature=temperature, total_steps=total, seed=seed, reference=reference, team=team
    )
    critic = None
    if start.critic is not None:
        value_model = load_trained(config, start.critic, start.checkpoint, "critic", device=device)
        value_copy = deepcopy(value_model).cpu() if rank is not None and is_first else None  # for checkpoints
        team = _shard(config, value_model, "critic", rank, copy=value_copy)
        critic = Critic(value_model, config.critic, total_steps=total, seed=seed, team=team)
    learners = {"actor": actor, "critic": critic, "reference": reference, "tokenizer": tokenizer}
    if rank is None:
        workers = LocalWorkers(config, agent, **learners)
    else:
        from ragen.workers.rank import RankWorkers

        workers = RankWorkers(config, agent, rank=rank, **learners)
    if start.checkpoint and start.state is not None:
        workers.load_optimizers(start.checkpoint)
    workers.refresh_engine()
    return workers


def train_seed(config: Config) -> int:
    """The training seed of a configuration that workers are built from."""
    assert config.seed.train is not None, "the seed is drawn before"
    return config.seed.train


def _shard(config: Config, model: Any, role: str, rank: Rank | None, *, copy: Any = None) -> Team:
    """Keep this rank's share of a model's weights; without ranks the model keeps them all."""
    if rank is None:
        return SOLO
    from ragen.distributed.sharding import shard

    return shard(model, rank, is_offloaded=config.offloaded[role], copy=copy)


def load_trained(
    config: Config, base: Path | str, checkpoint: Path | None, role: Role, *, device: str | None = None
) -> Any:
    """The model of a role as its training starts or continues. Adapters are added to the base model."""
    source = base if checkpoint is None or config.lora.rank > 0 else checkpoint / role
    load = partial(load_model, is_trained=True) if role == "actor" else load_value_model
    model = prepare(config, load(source, device=device), is_critic=role == "critic")
    if checkpoint is not None and has_adapter(model):
        load_adapter(model, checkpoint / role)
    if not family_of(model.config).has_fused_training:  # those are checked, on a CPU and on a GPU
        check_trainable(model)
    return model


def prepare(config: Config, model: Any, *, is_critic: bool = False) -> Any:
    """Adapters and gradient checkpointing, as configured."""
    if config.lora.rank > 0:
        heads = ("score", "classifier") if is_critic else ()
        add_adapter(model, config.lora, seed=fixed_hash(train_seed(config), "adapter", is_critic), trained_heads=heads)
    source = config.critic.model if is_critic else config.actor_rollout_ref.model
    if source.enable_gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model
