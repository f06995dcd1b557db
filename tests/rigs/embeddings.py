"""A server that speaks OpenAI's embeddings, over real sockets, faults included."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Embeddings:
    """A server of ``/v1/embeddings`` that answers with ``reply(texts)``."""

    def __init__(self, reply: Callable[[list[str]], Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        rig = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                rig.requests.append(body)
                rig.keys.append(self.headers.get("authorization", ""))
                answer = reply(body["input"])
                status = answer if isinstance(answer, int) else 200
                text = {"error": {"message": f"wrong key {self.headers.get('authorization')}"}}
                content = json.dumps(text if isinstance(answer, int) else answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def vectors(texts: list[str], dimension: int = 3) -> dict[str, Any]:
    rows = [[float(len(text)), 1.0, *[0.0] * (dimension - 2)] for text in texts]
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
    return {"object": "list", "model": "m", "data": data[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
