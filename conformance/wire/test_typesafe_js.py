"""The official JavaScript SDK, driven by `js/ask.mjs`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import KEYS
from questions import STATE, distance

from serving import Serving

FOLDER = Path(__file__).parents[1] / "js"


def run(server: Serving, key: str = "any") -> subprocess.CompletedProcess[str]:
    """Run the script; `npm install` in its folder comes first."""
    assert (FOLDER / "node_modules").is_dir(), f"run npm install in {FOLDER}"
    env = {**os.environ, "SYSTEM1_URL": server.url, "SYSTEM1_KEY": key, "SYSTEM1_STATE": STATE}
    command = ["node", "ask.mjs"]
    return subprocess.run(
        command, cwd=FOLDER, env=env, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def found(server: Serving) -> Any:
    """What the script printed."""
    ran = run(server)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_every_answer_type_is_parsed(found: Any) -> None:
    answers = found["data"]["answers"]
    assert list(answers) == ["topic", "urgency", "refund"]
    assert answers["topic"]["choice"] in ("billing", "shipping")
    assert answers["urgency"]["legend"] == {"0": "can wait", "1": {"by": "today"}, "2": ["now"]}
    assert 0 <= answers["refund"]["noul"] <= 1
    assert found["data"]["usage"]["input_tokens"] > 0


def test_the_request_id_is_read(found: Any) -> None:
    assert found["requestId"]


def test_fifty_parallel_calls_equal_a_lone_one(found: Any) -> None:
    assert len(found["many"]) == 50
    assert distance(found["many"][7], found["again"]) <= 1e-5


def test_the_models_are_listed(found: Any) -> None:
    assert "jev-latest" in found["models"]


def test_an_unknown_model_is_not_found(found: Any) -> None:
    assert found["unknownModel"]["kind"] == "NotFoundError"
    assert "no-such-model" in found["unknownModel"]["message"]
    assert found["unknownModel"]["requestId"]


@pytest.mark.parametrize("case", ["nullState", "nullLevel"])
def test_what_its_types_allow_and_the_protocol_does_not_is_unprocessable(
    found: Any, case: str
) -> None:
    assert found[case]["kind"] == "UnprocessableEntityError"


def test_a_wrong_key_is_an_authentication_error(locked_server: Serving) -> None:
    refused = run(locked_server, "wrong")
    assert refused.returncode != 0
    assert "AuthenticationError" in refused.stderr
    accepted = run(locked_server, KEYS[1])
    assert accepted.returncode == 0, accepted.stderr
