"""The command line as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from system1_core.ask import print_answers, request_body
from system1_core.errors import ConfigError


def system1(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from system1_core.cli import main; main()", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "command",
    ["serve", "ask", "models", "plugins", "pull", "export", "build-kernels", "check"],
)
def test_every_command_explains_itself(command):
    done = system1(command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_the_version_is_told():
    assert system1("--version").stdout.startswith("system1-core 0.3")


def test_a_wrong_name_ends_with_2_and_one_line():
    done = system1("serve", "no-such-model")
    assert done.returncode == 2
    assert "no installed model family is called 'no-such-model'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_ends_with_2():
    done = system1("serve", "--device", "tpu")
    assert done.returncode == 2
    assert "expected one of auto, cpu, cuda, mps" in done.stderr.replace("\n", " ")


def test_questions_are_built_from_the_command_line():
    body = request_body(
        "state", ["Which team? | billing=invoices | technical"], ["How? | low | high"], ["Is it?"]
    )
    assert body == {
        "state": "state",
        "questions": {
            "Which team?": {
                "type": "choice",
                "instructions": "Which team?",
                "criteria": {"billing": "invoices", "technical": None},
            },
            "How?": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
            "Is it?": {"type": "noul", "instructions": "Is it?"},
        },
    }


@pytest.mark.parametrize("choice", ["Which?", "| a", "Which? | a | "])
def test_a_question_without_options_is_refused(choice):
    with pytest.raises(ConfigError, match="QUESTION"):
        request_body("state", [choice], [], [])


def test_a_state_without_questions_is_refused():
    with pytest.raises(ConfigError, match="at least one of"):
        request_body("state", [], [], [])


ANSWERS = {
    "model": "zeros",
    "answers": {
        "team": {
            "type": "choice",
            "choice": "billing",
            "probabilities": {"billing": 0.9, "[red]sales": 0.1},
            "confidence": 0.8,
        },
        "how": {
            "type": "score",
            "score": 0.25,
            "legend": {"0": "low", "1": {"a": 1}},
            "probabilities": {"0": 0.75, "1": 0.25},
            "confidence": 0.5,
        },
        "is": {"type": "noul", "noul": 0.3},
    },
    "usage": {"input_tokens": 5, "output_tokens": 0},
}


def test_answers_are_shown_as_bars_and_percentages(capsys):
    questions = {name: {"type": one["type"]} for name, one in ANSWERS["answers"].items()}
    print_answers({"state": "s", "questions": questions}, ANSWERS, as_json=False)
    shown = capsys.readouterr().out
    for text in ("90.0%", "[red]sales", "0 low", "score 0.25", "70.0%", "█", "zeros, 5 tokens"):
        assert text in shown


def test_answers_may_be_printed_as_json(capsys):
    print_answers({}, ANSWERS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ANSWERS


PLUGIN = """
import sys
sys.path.insert(0, {tests!r})
import threading
from fakes import Zeros, family, plugins
import system1_core.plugins
system1_core.plugins.discover = lambda: plugins(family(executor=Slow()))
class Slow(Zeros):
    def execute(self, prompts):
        import time
        time.sleep({seconds})
        return super().execute(prompts)
from system1_core.cli import main
main()
"""


def start(port_file: Path, seconds: float, *options: str) -> subprocess.Popen[str]:
    code = PLUGIN.format(tests=str(Path(__file__).parent), seconds=seconds)
    port = str(free_port(port_file))
    command = [sys.executable, "-c", code, "serve", "zeros", "--port", port, *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def free_port(port_file: Path) -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    port_file.write_text(str(port))
    return port


def wait_ready(url: str) -> None:
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.02)
    raise TimeoutError


def test_sigterm_finishes_what_was_admitted_and_exits_with_0(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from system1_core.testing import TestServer

    port_file = tmp_path / "port"
    process = start(port_file, seconds=0.5)
    server = TestServer(int(port_file.read_text()))
    try:
        wait_ready(server.url)
        body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}}
        with ThreadPoolExecutor(1) as pool:
            admitted = pool.submit(server.post, "/v1/systemone", body)
            time.sleep(0.2)
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.1)
            late = server.post("/v1/systemone", body)
            health = server.get("/health")
            assert admitted.result().status == 200
        assert late.status == 503
        assert late.headers["retry-after"]
        assert health.json["status"] == "draining"
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


@pytest.mark.parametrize("signals", [1, 2])
def test_the_drain_limit_and_a_second_signal_end_the_process(tmp_path, signals):
    from concurrent.futures import ThreadPoolExecutor

    from system1_core.testing import TestServer

    port_file = tmp_path / "port"
    limit = "0.3" if signals == 1 else "60"
    process = start(port_file, 4, "--drain-timeout", limit)
    server = TestServer(int(port_file.read_text()))
    try:
        wait_ready(server.url)
        body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}}
        with ThreadPoolExecutor(1) as pool:
            admitted = pool.submit(server.post, "/v1/systemone", body)
            time.sleep(0.3)
            for _ in range(signals):
                os.kill(process.pid, signal.SIGTERM)
                time.sleep(0.2)
            if signals == 1:
                assert admitted.result().status == 503
            else:
                assert admitted.exception() is not None
        assert process.wait(6) in (0, 1)
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def test_a_taken_port_ends_with_2(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = PLUGIN.format(tests=str(Path(__file__).parent), seconds=0)
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", code, "serve", "zeros", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "cannot listen" in done.stderr


def test_check_answers_the_example(tmp_path):
    code = PLUGIN.format(tests=str(Path(__file__).parent), seconds=0)
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "zeros"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "zeros: ok\n"
    assert done.returncode == 0


def test_ask_without_a_question_shows_the_example():
    code = PLUGIN.format(tests=str(Path(__file__).parent), seconds=0)
    done = subprocess.run(
        [sys.executable, "-c", code, "ask"], capture_output=True, text=True, timeout=60
    )
    assert "100.0%" in done.stdout


def test_build_kernels_says_when_there_is_nothing_to_compile():
    code = PLUGIN.format(tests=str(Path(__file__).parent), seconds=0)
    done = subprocess.run(
        [sys.executable, "-c", code, "build-kernels"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "no installed backend has kernels" in done.stdout
