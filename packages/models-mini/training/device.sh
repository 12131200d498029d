#!/usr/bin/env bash
# On a machine with a GPU, from the repository's root: explore, or train the seeds of the chosen one.
#   bash packages/models-mini/training/device.sh explore [SETTINGS.json] [SECONDS]
#   bash packages/models-mini/training/device.sh train [SETTINGS.json]
# $OUT gets explore.json, log.txt, and the best run's report and tensors. Installs nothing.
set -euo pipefail
cd "$(dirname "$0")"
export PYTHONPATH=../src:../../system1-core/src CUBLAS_WORKSPACE_CONFIG=:4096:8
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
case "${1:-explore}" in
  explore)
    python3 explore.py "${2:-settings/explore.json}" "$OUT" \
      --train-seconds "${3:-400}" --seconds 570 ;;
  train) # full runs of the seeds, without a time limit of their own, and their mean
    python3 explore.py "${2:-settings/seeds.json}" "$OUT" --seconds 550 --average ;;
esac
