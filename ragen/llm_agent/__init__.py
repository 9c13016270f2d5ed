"""How a model plays: episodes turn by turn, whatever engine writes the replies.

agent_proxy.py                            the loop over many episodes at once
es_manager.py, env_calls.py, env_threads.py   the environments of a rollout, and calls into them that may fail or hang
ctx_manager.py, prompts.py                what the model sees in each context mode, and what of it is trained on
chat.py, markers.py                       chat templates as token ids that only grow
parsing.py                                from a reply to actions
metrics.py                                what a rollout achieved
build.py, policies.py                     from a configuration to an agent; the solver and the random policy as players

One more context mode: a method of CtxManager, its name in AgentProxyConfig.context_window_mode, a test in
tests/llm_agent/test_ctx_manager.py. One more chat format needs no code: templates are read, see chat.py.
"""
