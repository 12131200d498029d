"""A `system1 serve` process of its own, as a user would start it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from system1_core.testing import TestServer

# Loading the largest model of these tests takes seconds; this only ends a hang.
READY_LIMIT_S = 120
EXIT_LIMIT_S = 60

SYSTEM1 = str(Path(sys.executable).with_name("system1"))


class Serving(TestServer):
    """A running server process; `send`, `get`, `post` and `ask` talk to it."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        super().__init__(port)
        self.process = process
        self.log = log

    def wait_until_ready(self) -> None:
        """Returns when /health answers 200; fails with the log when the process ends before."""
        deadline = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.log.read_text()}"
            try:
                if self.get("/health").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise TimeoutError(f"not ready within {READY_LIMIT_S} s: {self.log.read_text()}")

    def terminate(self) -> None:
        """SIGTERM, as a supervisor sends it."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(EXIT_LIMIT_S)


@contextmanager
def serving(*arguments: str, log: Path) -> Iterator[Serving]:
    """Run `system1 serve` with these arguments on a free port until the block ends."""
    port = free_port()
    command = [SYSTEM1, "serve", *arguments, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    server = Serving(port, process, log)
    try:
        server.wait_until_ready()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
