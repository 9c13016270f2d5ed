#!/usr/bin/env bash
# Probe the gradient of a saved step. Options: --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.cli sweep probe-ckpt "$@"
