"""From a configuration to a trainer, from scratch or from a checkpoint."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config.load import to_dict
from ragen.config.schema import Config
from ragen.config.seeds import first_clear_seed, training_levels, validation_levels
from ragen.config.show import to_yaml
from ragen.learners.actor import Actor
from ragen.learners.critic import Critic
from ragen.learners.reference import Reference
from ragen.llm_agent.build import native_agent, vllm_agent
from ragen.modeling.load import default_device, load_model, load_tokenizer, load_value_model
from ragen.modeling.lora import add_adapter, has_adapter, load_adapter
from ragen.seeding import fixed_hash
from ragen.tracking.last_word import LastWord
from ragen.tracking.lock import RunLock
from ragen.tracking.rundir import RunDir
from ragen.tracking.tracker import Trackers
from ragen.trainer.agent_trainer import AgentTrainer
from ragen.trainer.checkpoint import name_newest, step_of
from ragen.trainer.checksums import verify
from ragen.trainer.folder import clear_half_written, put_aside, put_newer_aside
from ragen.trainer.memory import cache_rows, check_memory, memory_advice
from ragen.trainer.notices import notices
from ragen.trainer.start import Start, is_within, origin, plan_start
from ragen.workers.base import Workers
from ragen.workers.local import LocalWorkers

if TYPE_CHECKING:
    from ragen.distributed.ranks import Ranks
    from ragen.distributed.team import Rank
    from ragen.workers.rank import RankWorkers


def build_trainer(config: Config, *, device: str | None = None, ranks: Ranks | None = None) -> AgentTrainer | None:
    """A trainer ready to fit; None when the run is finished already. `ranks` are used instead of new processes.

    The folder of the run is locked until the trainer has been fitted.
    """
    with ExitStack() as held:
        root = Path(config.trainer.default_local_dir)
        if not config.trainer.val_only:
            held.enter_context(RunLock(root))
        start = plan_start(config)
        if start is None:
            return None
        if config.trainer.val_only:
            # What the run itself logged stays as it is, and it may still be training.
            root = root / f"validation_of_step_{start.step}" if start.checkpoint else root
            held.enter_context(RunLock(root))
        trainer = _build(config, start, root, device=device, ranks=ranks)
        trainer.held.push(held.pop_all())
        return trainer


def _build(config: Config, start: Start, root: Path, *, device: str | None, ranks: Ranks | None) -> AgentTrainer:
    trainer = config.trainer
    if start.checkpoint:
        verify(start.checkpoint)
    for note in start.notes:
        print(note, flush=True)
    if config.seed.train is None:
        seed = draw_seed(config) if start.train_seed is None else start.train_seed
        config = replace(config, seed=replace(config.seed, train=seed))  # so that config.yaml names it
    for notice in notices(config):
        print(notice, flush=True)
    if config.uses_fsdp:
        workers = build_ray_workers(config, start, device=device or default_device(), ranks=ranks)
    else:
        workers = build_workers(config, start, device=device or default_device())
    claim_folder(root, start.checkpoint, is_branch=trainer.resume_mode == "resume_path")
    run = RunDir(root)
    run.write_config(to_yaml(config))
    trackers = Trackers(
        trainer.logger,
        config=to_dict(config),
        run_dir=run,
        project=trainer.project_name,
        experiment=trainer.experiment_name,
        total_steps=trainer.total_training_steps,
        resumed_step=start.step if start.checkpoint else None,
        console=trainer.console,
    )
    built = AgentTrainer(config, workers, trackers=trackers, start_step=start.step, origin=origin(config, start))
    if start.state:
        built.load_state(start.state)
    elif start.checkpoint is not None:
        built.played.is_complete = False
    if config.uses_fsdp:
        built.held.enter_context(LastWord(root))
    return built


def draw_seed(config: Config) -> int:
    """A training seed whose levels are not validated on."""
    return first_clear_seed(secrets.randbelow(10**6), len(training_levels(config, 0)), validation_levels(config))


def train_seed(config: Config) -> int:
    """The training seed of a configuration that workers are built from."""
    assert config.seed.train is not None, "the seed is drawn before"
    return config.seed.train


def claim_folder(root: Path, checkpoint: Path | None, *, is_branch: bool) -> None:
    """Make the folder this run's: what a former run left is moved aside, unless this one continues it.

    `is_branch`: it continues from any of the checkpoints, not from the newest.
    """
    aside = None
    if checkpoint is None or not is_within(checkpoint, root):
        aside = put_aside(root)
    else:
        clear_half_written(root)
        name_newest(root, step_of(checkpoint))
        if is_branch:
            aside = put_newer_aside(root, step_of(checkpoint))
    if aside:
        print(f"Moved what another run left in {root} to {aside}.", flush=True)


def build_workers(config: Config, start: Start, *, device: str) -> LocalWorkers:
    """Models, optimizers and engine on one device."""
    parts, total, seed = config.actor_rollout_ref, config.trainer.total_training_steps, train_seed(config)
    rollout, base, checkpoint = parts.rollout, start.actor, start.checkpoint
    print(check_memory(config, base, device), flush=True)
    tokenizer = load_tokenizer(base)
    model = prepare(config, load_model(_weights(config, base, checkpoint, "actor"), device=device, is_trained=True))
    if rollout.name == "vllm":
        agent = vllm_agent(config, base, tokenizer, dtype=model.dtype, has_weights=False)
    else:
        agent = native_agent(config, model, tokenizer, max_num_seqs=cache_rows(config, model.config, device))
    reference = build_reference(config, model, base, device) if config.uses_reference else None
    actor = Actor(
        model, parts.actor, temperature=rollout.temperature, total_steps=total, seed=seed, reference=reference
    )
    critic = None
    if start.critic is not None:
        value_model = load_value_model(_weights(config, start.critic, checkpoint, "critic"), device=device)
        critic = Critic(prepare(config, value_model, is_critic=True), config.critic, total_steps=total, seed=seed)
    workers = LocalWorkers(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)
    if checkpoint:
        workers.load(checkpoint, with_optimizers=start.state is not None)
    workers.refresh_engine()
    return workers


def build_ray_workers(config: Config, start: Start, *, device: str, ranks: Ranks | None) -> Workers:
    """Models in parts, one process for each device. This process leaves the devices alone."""
    from ragen.distributed.ranks import Ranks
    from ragen.workers.ray import RayWorkers

    # Other processes may work in another folder.
    places = {name: getattr(start, name) for name in ("actor", "critic", "checkpoint")}
    start = replace(start, **{name: Path(p).absolute() for name, p in places.items() if p and Path(p).exists()})
    tokenizer = load_tokenizer(start.actor)
    owns_ranks = ranks is None
    ranks = Ranks(config, device=device) if ranks is None else ranks
    return RayWorkers(
        config,
        partial(build_rank, config, start),
        ranks,
        tokenizer=tokenizer,
        memory_advice=memory_advice(config, device),
        owns_ranks=owns_ranks,
    )


def build_rank(config: Config, start: Start, rank: Rank) -> RankWorkers:
    """What one rank holds: its parts of all models, and a whole policy to play with."""
    from ragen.distributed.sharding import Whole, shard
    from ragen.distributed.team import ShardTeam
    from ragen.workers.rank import RankWorkers

    parts, total, seed = config.actor_rollout_ref, config.trainer.total_training_steps, train_seed(config)
    base, checkpoint, device = start.actor, start.checkpoint, rank.device
    memory = check_memory(config, base, device)
    if rank.number == 0:
        print(memory, flush=True)
    tokenizer = load_tokenizer(base)
    model = prepare(config, load_model(_weights(config, base, checkpoint, "actor"), device=device, is_trained=True))
    _load_adapter(model, checkpoint, "actor")
    policy = deepcopy(model).eval()
    if parts.rollout.name == "vllm":
        agent = vllm_agent(config, base, tokenizer, dtype=policy.dtype, has_weights=False, joins_group=True)
    else:
        agent = native_agent(config, policy, tokenizer, max_num_seqs=cache_rows(config, model.config, device))
    team = ShardTeam(rank, shard(model, rank, is_offloaded=config.offloaded["actor"]))
    wholes = {"actor": Whole(policy, model, rank)}
    reference = None
    if config.uses_reference:
        reference = build_reference(config, model, base, device)
        reference.team = team
        if reference.model is not model:
            reference.team = ShardTeam(rank, shard(reference.model, rank, is_offloaded=config.offloaded["ref"]))
    actor = Actor(
        model,
        parts.actor,
        temperature=parts.rollout.temperature,
        total_steps=total,
        seed=seed,
        reference=reference,
        team=team,
    )
    critic = None
    if start.critic is not None:
        source = _weights(config, start.critic, checkpoint, "critic")
        value_model = prepare(config, load_value_model(source, device=device), is_critic=True)
        _load_adapter(value_model, checkpoint, "critic")
        copy = deepcopy(value_model).cpu() if rank.number == 0 else None  # for checkpoints
        team = ShardTeam(rank, shard(value_model, rank, is_offloaded=config.offloaded["critic"]))
        wholes["critic"] = Whole(copy, value_model, rank)
        critic = Critic(value_model, config.critic, total_steps=total, seed=seed, team=team)
    workers = RankWorkers(
        config, agent, rank=rank, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer, wholes=wholes
    )
    if checkpoint and start.state is not None:
        workers.load_optimizers(checkpoint)
    workers.refresh_engine()
    return workers


def _load_adapter(model: Any, checkpoint: Path | None, role: str) -> None:
    if checkpoint is not None and has_adapter(model):
        load_adapter(model, checkpoint / role)


def _weights(config: Config, base: Path | str, checkpoint: Path | None, role: str) -> Path | str:
    """Where a role's weights are. Adapters are added to the base model, so there the base is loaded."""
    return base if checkpoint is None or config.lora.rank > 0 else checkpoint / role


def prepare(config: Config, model: Any, *, is_critic: bool = False) -> Any:
    """Adapters and gradient checkpointing, as configured."""
    if config.lora.rank > 0:
        heads = ("score", "classifier") if is_critic else ()
        add_adapter(model, config.lora, seed=fixed_hash(train_seed(config), "adapter", is_critic), trained_heads=heads)
    source = config.critic.model if is_critic else config.actor_rollout_ref.model
    if source.enable_gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def build_reference(config: Config, actor_model: Any, base: Path | str, device: str) -> Reference:
    """The initial policy: a second model, or the actor's own without its adapter."""
    if config.lora.rank > 0:
        return Reference(actor_model, is_adapter_off=True)
    return Reference(load_model(base, device=device).requires_grad_(False))
