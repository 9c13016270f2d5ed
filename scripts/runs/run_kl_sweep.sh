#!/usr/bin/env bash
# How strongly to hold the policy at the reference: one Sokoban run per coefficient. Options: --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.cli sweep kl "$@"
