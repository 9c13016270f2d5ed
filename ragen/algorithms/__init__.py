"""The formulas: pure functions of tensors and numbers, to be read beside the papers. No models, no environments.

advantage.py (gae.py, group_advantage.py, gigpo.py)   rewards to advantages
losses.py, kl.py, entropy.py, masked.py               advantages to a loss
rollout_filter.py (filter_strategies, filter_panel)   which groups are trained on; without torch
reward_norm.py, statistics.py                         rescaled scores, means with intervals

One more estimator: a function whose parameters are fields of AdvantageInputs, an entry in advantage.ESTIMATORS, and
what it needs in ragen/config/estimators.py. One more loss, filter strategy or group metric: a function and an entry in
POLICY_LOSSES, STRATEGIES or METRICS, and a choice in ragen/config/actor_rollout_ref.py; a strategy also has the
bound of its value in ragen/config/validate.py. Each with a row in docs/algorithms.md and a test with numbers worked by
hand; an estimator also with what benchmarks/credit.py finds of its bias.
"""
