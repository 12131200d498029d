"""Clients of a throughput run, in a process of their own.

    load.py PORT CLIENTS SECONDS SEED
    load.py PORT CLIENTS SECONDS FIRST BODIES TOTAL

Each client keeps one connection and asks its next question when the last is answered. The first
form asks LAYA's question about ever new states. In the second, client FIRST + i of TOTAL sends
each TOTAL-th line of the file BODIES, so that no two ever send the same. Prints one JSON object:
requests answered in the measured time, failures, milliseconds of each. Of the standard library
only, so that it starts at once.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

WARMUP_S = 2.0
QUESTION = {
    "type": "choice",
    "instructions": "Which team?",
    "criteria": {
        "billing": "invoices, payments and refunds",
        "technical": "bugs and outages",
        "other": "everything else",
    },
}


def body_of(index: int) -> bytes:
    """One question about a state that no other index has."""
    state = f"Ticket {index}: I was charged twice for March, please refund the duplicate payment."
    return json.dumps({"state": state, "questions": {"team": QUESTION}}).encode()


def laya_bodies(client: int, seed: int) -> Iterator[bytes]:
    return map(body_of, count((seed * 1000 + client) * 100_000))


def request_of(body: bytes) -> bytes:
    head = (
        "POST /v1/systemone HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """One keep-alive connection with one request on its way."""

    def __init__(self, port: int, bodies: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bodies, self._received, self._sent = bodies, b"", 0.0

    def ask(self) -> None:
        request = request_of(next(self._bodies))
        self._received, self._sent = b"", time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> tuple[bool, float] | None:
        """(whether it is a 200, seconds) once the whole response is here."""
        chunk = self.socket.recv(65_536)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._received += chunk
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.lower().split(b"\r\n")
        length = next(int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length:"))
        if len(body) < length:
            return None
        return head.startswith(b"HTTP/1.1 200"), time.perf_counter() - self._sent


def main() -> None:
    port, clients, seconds, seed = *map(int, sys.argv[1:3]), float(sys.argv[3]), int(sys.argv[4])
    lines = Path(sys.argv[5]).read_bytes().splitlines() if len(sys.argv) > 5 else []
    selector = selectors.DefaultSelector()
    for index in range(clients):
        own = cycle(lines[seed + index :: int(sys.argv[6])]) if lines else laya_bodies(index, seed)
        client = Client(port, own)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.ask()
    begin = time.perf_counter() + WARMUP_S
    end = begin + seconds
    failed, samples = 0, []
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(end - now):
            client = key.data
            if (received := client.receive()) is None:
                continue
            if begin <= time.perf_counter() < end:
                failed += not received[0]
                samples.append(round(received[1] * 1e3, 3))
            client.ask()
    print(
        json.dumps({"answered": len(samples) - failed, "failed": failed, "milliseconds": samples})
    )


if __name__ == "__main__":
    main()
