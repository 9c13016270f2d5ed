#!/usr/bin/env bash
# How strongly to filter groups by reward variance: one Sokoban run per value. Options: --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.cli sweep top-p "$@"
