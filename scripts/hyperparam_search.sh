#!/usr/bin/env bash
# The hyper-parameter search of the base experiments, one group of values at a time. Options: --help, docs/legacy.md
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.legacy.search "$@"
