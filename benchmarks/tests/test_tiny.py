"""Every H200 script end to end on small layers and a CPU: servers start, rows are written.

Needs benchmarks-random-weights installed; rivals that are not installed are reported in the JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "h200"
RUNS = {
    "openjev_27b.py --parts http,c16,choice,floor --dtypes bfloat16": {
        "openjev_27b.bf16.mean_http_ms",
        "openjev_27b.bf16.ratio_gemm_floor",
        "openjev_27b.bf16.c16_107tok_rps",
        "openjev_27b.bf16.choice4_2000tok_ratio",
    },
    "cuas1_4b.py --parts http,screenshot,floor": {
        "cuas1_4b.139tok_ms",
        "cuas1_4b.218tok_ms",
        "cuas1_4b.712tok_ms",
        "cuas1_4b.screenshot_ratio_floor",
    },
    "omnijev_4b.py": {
        "omnijev_4b.1080p.q1_ms",
        "omnijev_4b.1080p.q12_ms",
        "omnijev_4b.1080p.q12_c16_rps",
    },
}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.split()[0])
def test_a_script_writes_its_rows(run: str, tmp_path: Path) -> None:
    script, *parts = run.split()
    out = tmp_path / "out.json"
    tiny = ["--tiny", "--device", "cpu", "--passes", "1", "--seconds", "2"]
    command = [sys.executable, str(SCRIPTS / script), str(out), *parts, *tiny]
    subprocess.run(command, check=True, timeout=300)
    content = json.loads(out.read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert RUNS[run] <= set(rows)
    assert all(row["value"] > 0 for row in rows.values())
    assert not [name for name, part in content["parts"].items() if part and "error" in part]


@pytest.mark.parametrize("size", ["4B", "27B"])
def test_parity_compares_three_runs(size: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    out = tmp_path / "out.json"
    more = ["--tiny", "--device", "cpu", "--prompts", "4", "--longest", "300"]
    command = [sys.executable, str(SCRIPTS / "parity.py"), str(out), size, *more]
    subprocess.run(command, check=True, timeout=300)
    report = json.loads(out.read_text())["report"]
    # All in bfloat16, and so near each other but not equal.
    assert 0 < report["ours"]["mean"] < 0.01
    assert 0.2 < report["ratio"] < 5
