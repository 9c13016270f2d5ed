#!/usr/bin/env bash
# Train Sokoban and probe the gradient at steps 1, 51, 101. Options: --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.cli sweep grad-analysis "$@"
