"""A stub embedding server on loopback, with the vectors that the golden cases were made with."""

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

DIM = 64


def stub_vector(text, dim=DIM):
    """Unit length, from SHA-256 of a counter and the text."""
    values = []
    counter = 0
    while len(values) < dim:
        digest = hashlib.sha256(f"{counter}:{text}".encode()).digest()
        values += [word / 2**31 - 1 for word in struct.unpack(">8I", digest)]
        counter += 1
    row = np.array(values[:dim])
    return (row / np.linalg.norm(row)).astype("<f4")


def count_tokens(texts):
    return sum(max(1, len(text) // 4) for text in texts)


class StubServer:
    """What it was sent, and how it answers.

    `gate` maps a part of a text to an event that the call waits for. `answer` replaces the body.
    """

    def __init__(self):
        self.calls = []
        self.headers = []
        self.gates = {}
        self.arrived = threading.Event()
        self.rows_as_lists = False
        self.backwards = False
        self.dim = DIM
        self.answer = None
        self.status = 200
        self.url = ""
        self.is_dead = False

    def body_for(self, call):
        texts = call["input"]
        if self.answer is not None:
            return self.answer
        rows = []
        for index, text in enumerate(texts):
            vector = stub_vector(text, self.dim)
            shown = vector.tolist() if self.rows_as_lists else base64.b64encode(vector).decode()
            rows.append({"object": "embedding", "index": index, "embedding": shown})
        if self.backwards:
            rows.reverse()
        return {"data": rows, "usage": {"prompt_tokens": count_tokens(texts)}}


@contextmanager
def serve_stub() -> Iterator[StubServer]:
    stub = StubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args):
            pass

        def do_POST(self):
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if stub.is_dead:
                self.close_connection = True
                return
            stub.calls.append(call)
            stub.headers.append(dict(self.headers))
            stub.arrived.set()
            for part, gate in stub.gates.items():
                if any(part in text for text in call["input"]):
                    gate.wait(30)
            failing = any("EMBEDFAIL" in text for text in call["input"])
            status = 500 if failing else stub.status
            body = b"no such luck" if failing else json.dumps(stub.body_for(call)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1/embeddings"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.is_dead = True  # connections that are still open die with it
        for gate in stub.gates.values():
            gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
