#!/usr/bin/env bash
# Build the kernels, test them, check them with compute-sanitizer, and time them. Writes to $OUT.
# Run from the repository root on a machine with an NVIDIA GPU and nvcc.
set -uo pipefail
: "${OUT:?set OUT to a folder for the results}"
root=$(pwd)
export PYTHONPATH=$root/packages/system1-core/src:$root/packages/system1-torch/src
export PYTHONPATH=$PYTHONPATH:$root/packages/system1-cuda/src:$root/packages/models-laya/src
export PYTHONUNBUFFERED=1 SYSTEM1_CACHE=${SYSTEM1_CACHE:-/tmp/system1}
python=${PYTHON:-python3}

step() {
  local name=$1 limit=$2 begin=$SECONDS output
  shift 2
  output=$(mktemp)
  timeout "$limit" "$@" >"$output" 2>&1
  echo "== $name: exit $? after $((SECONDS - begin)) s" | tee -a "$OUT/step1.log"
  cat "$output" >>"$OUT/step1.log"
  tail -n "${SHOW:-12}" "$output"
}

step build 120 "$python" -c 'from system1_cuda.build import build_kernels; print(build_kernels())'
cd packages/system1-cuda || exit 1
step tests 150 "$python" -m pytest -q -m gpu -p no:cacheprovider --maxfail=20 tests/test_kernels.py
cd "$root/packages/system1-torch" || exit 1
step graph_tests 60 "$python" -m pytest -q -m gpu -p no:cacheprovider tests/test_graphs.py
cd "$root/benchmarks/h200" || exit 1
step kernels 180 "$python" kernels.py "$OUT/kernels.json"
step laya_forward 120 "$python" laya_forward.py "$OUT/laya_forward.json"
cd "$root/packages/system1-cuda" || exit 1
# Every tensor in an allocation of its own, so that a read beyond one is seen.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
for tool in ${SANITIZERS-memcheck racecheck}; do
  step "$tool" "${SANITIZER_LIMIT:-100}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
    "$python" -m pytest -q -x -m gpu -p no:cacheprovider tests/test_kernels.py \
    -k "${SANITIZED:-(odd or length-one-among-long) and not float16 and not 100}"
done
