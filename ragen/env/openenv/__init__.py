"""OpenEnv's protocol: any server as an environment (env.py), any environment as a server (server.py).

Messages are JSON over a WebSocket (protocol.py), as the package openenv 0.10 writes and reads them. The package itself
is not needed.
"""
