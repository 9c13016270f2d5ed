"""Any server that speaks OpenAI's /chat/completions as an engine: text for evaluation, nothing to train on.

engine.py retries and gives up, protocol.py reads answers, http.py sends, key.py keeps the key out of messages.
One more kind of server answer is read in protocol.py, with a case in tests/engine.
"""
