#!/usr/bin/env bash
# NVIDIA's aiperf and `tailhold load` against the same server with the same questions at the same times.
#   bench/second_opinion.sh [--url URL] [--rate R] [--duration 120s] ...   prints a table
# aiperf is installed into a folder of its own below the cache folder, never into .venv. Start a server first:
#   tailhold serve examples/ragpipeline.yaml
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.13.0
cache=${TAILHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tailhold}
folder=$cache/second-opinion/aiperf-$version
uv=.venv/bin/uv
if [ ! -x "$folder/bin/aiperf" ]; then
  "$uv" venv -q -p .venv/bin/python "$folder"
  "$uv" pip install -q -p "$folder/bin/python" "aiperf==$version"
fi
export PYTHONPATH=crds:server:cli:bench${PYTHONPATH:+:$PYTHONPATH}
exec .venv/bin/python -m tailhold_bench.second_opinion --aiperf "$folder/bin/aiperf" \
  --tokenizer "$cache/claims/models/smollm2-135m-instruct" "$@"
