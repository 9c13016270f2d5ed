"""vLLM as an engine, with the sampling and stop rules of the native one; only this folder imports vLLM.

One more option of vLLM is a key of actor_rollout_ref.rollout that engine.py hands to it, and a row in docs/engines.md.
"""
