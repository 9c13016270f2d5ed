"""What follows from several keys of a configuration."""

from ragen.config import load_config


def test_critic_and_reference_exist_only_when_they_are_needed():
    assert load_config("base").uses_critic
    assert not load_config("base").uses_reference
    assert not load_config("base", ["algorithm.adv_estimator=grpo"]).uses_critic
    assert load_config("base", ["actor_rollout_ref.actor.use_kl_loss=True"]).uses_reference


OFFLOAD = "actor_rollout_ref.actor.fsdp_config.offload_policy=True"
KL = "actor_rollout_ref.actor.use_kl_loss=True"


def test_what_the_estimator_needs_follows_from_its_name_and_its_switch():
    gae = load_config("base", ["algorithm.bi_level_gae=True"]).algorithm
    assert (gae.estimator, gae.needs) == ("bi_level_gae", {"values"})
    grpo = load_config("base", ["algorithm.adv_estimator=grpo"]).algorithm
    assert (grpo.estimator, grpo.needs) == ("grpo", set())
    assert load_config("base", ["algorithm.adv_estimator=gigpo"]).algorithm.needs == {"turns"}


def test_a_model_is_sharded_on_several_devices_or_where_it_is_offloaded():
    alone = load_config("base")
    assert (alone.num_ranks, alone.uses_fsdp) == (1, False)
    two = load_config("base", ["trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES='0,1'"])
    assert (two.num_ranks, two.uses_fsdp) == (2, True)
    assert load_config("base", [OFFLOAD]).uses_fsdp


def test_the_models_of_a_run_are_those_it_trains_or_scores_with():
    assert set(load_config("base", [KL]).offloaded) == {"actor", "critic", "ref"}
    adapters = load_config("base", [KL, "algorithm.adv_estimator=grpo", "lora.rank=8"])
    assert set(adapters.offloaded) == {"actor"}  # the reference is the actor without its adapter


def test_only_vllm_spreads_an_engine_over_ranks():
    shared = ["trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES='0,1'"]
    shared += ["actor_rollout_ref.rollout.tensor_model_parallel_size=2"]
    assert load_config("base", [*shared, "actor_rollout_ref.rollout.name=vllm"]).ranks_per_engine == 2
    assert load_config("base", [*shared, "actor_rollout_ref.rollout.name=native"]).ranks_per_engine == 1
