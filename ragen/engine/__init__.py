"""Engines write replies: token ids with log-probs from a model here, or text from a server elsewhere.

base.py is the protocol, registry.py says what is known of each engine by its name, sampling.py and stopping.py are
how tokens are drawn and when a reply is over, for all of them. sessions.py schedules the engines of this process;
shared.py lets several processes hold one.

One more engine: a folder here whose module has `build(rollout, source) -> Engine`, a subclass of `base.Engine` (of
`sessions.SessionEngine` where it keeps caches itself), and a line in registry.ENGINES. With that it is a value of
actor_rollout_ref.rollout.name, is built by training and evaluation, and is counted in the estimate of memory.
docs/engines.md tells users when to choose it.
"""
