#!/usr/bin/env bash
# The Qwen3.5 families on one GPU: `step2.sh [STEP…]`, each step with a limit. Writes JSON to $OUT.
# Everything is installed before, ours, benchmarks-random-weights and the rivals included, and the
# kernels are built (`system1 build-kernels`). A step that fails or runs late costs no other.
set -uo pipefail
: "${OUT:?set OUT to a folder for the results}"
cd "$(dirname "$0")" || exit 1
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 SYSTEM1_CACHE=${SYSTEM1_CACHE:-/tmp/system1}
python=${PYTHON:-python3}

step() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  timeout "$limit" "$python" "$@" 2>&1 | tee -a "$OUT/step2.log" |
    grep -E '^\[|Error' | tail -n "${SHOW:-40}"
  echo "== $name: exit ${PIPESTATUS[0]} after $((SECONDS - begin)) s"
}

[ $# -gt 0 ] || set -- openjev_all cuas1 omnijev parity_4b parity_27b
for name in "$@"; do
  case $name in
    # The served figures and their floors, then each rival by itself.
    openjev) step openjev_27b 280 openjev_27b.py "$OUT/openjev_27b.json" --parts http,c16,choice,floor ;;
    openjev_all) step openjev_27b 560 openjev_27b.py "$OUT/openjev_27b.json" ;;
    openjev_bf16) step openjev_27b 200 openjev_27b.py "$OUT/openjev_27b.json" \
      --parts http,c16,choice,floor --dtypes bfloat16 ;;
    openjev_rivals) step openjev_rivals 300 openjev_27b.py "$OUT/openjev_rivals.json" \
      --parts torch,fla,flide --dtypes bfloat16 ;;
    cuas1) step cuas1_4b 240 cuas1_4b.py "$OUT/cuas1_4b.json" ;;
    cuas1_served) step cuas1_4b 120 cuas1_4b.py "$OUT/cuas1_4b.json" --parts http,screenshot,floor ;;
    omnijev) step omnijev_4b 150 omnijev_4b.py "$OUT/omnijev_4b.json" ;;
    parity_4b) step parity_4b 150 parity.py "$OUT/parity_4b.json" 4B ;;
    parity_27b) step parity_27b 200 parity.py "$OUT/parity_27b.json" 27B ;;
    *) echo "no step $name" >&2 ;;
  esac
done
