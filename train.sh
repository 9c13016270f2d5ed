#!/usr/bin/env bash
# The legacy command line: bash train.sh ENV key=value ...   Keys old and new, and --show: docs/legacy.md
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
export PYTHONHASHSEED=10000
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m ragen.legacy "$@"
