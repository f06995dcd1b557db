"""The server of Atropos in an environment of its own, its trainer, and a proxy that loses an answer."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.rigs.bounded import wait_until
from tests.rigs.peers import install_peer

if TYPE_CHECKING:
    from collections.abc import Generator

_PAUSE_S = 0.3


def call(url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        found: dict[str, Any] = json.load(response)
        return found


@contextmanager
def serve_api() -> Generator[str]:
    """Run the released server; yield its address."""
    python = install_peer("fastapi", "uvicorn", alone="atroposlib==0.4.0")
    argv = [str(python), "-m", "uvicorn", "atroposlib.api:app", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr
    try:
        lines = iter(process.stderr.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield url
    finally:
        process.kill()
        process.wait()


class Trainer:
    """Registers, asks for batches, and keeps the groups that it got."""

    def __init__(self, url: str, batch: int, max_tokens: int = 8192) -> None:
        self.url = url
        self.groups: list[dict[str, Any]] = []
        self._end = threading.Event()
        call(url, "POST", "/register", {
            "wandb_group": "g", "wandb_project": "p", "batch_size": batch, "max_token_len": max_tokens,
            "checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 100,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        """Ask for the first batch, and for each further one."""
        self._thread.start()

    def _poll(self) -> None:
        while not self._end.wait(_PAUSE_S):
            self.groups += call(self.url, "GET", "/batch")["batch"] or []

    def await_groups(self, count: int) -> None:
        wait_until(lambda: len(self.groups) >= count)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


@contextmanager
def lose_first_answer(url: str, path: str) -> Generator[tuple[str, list[str]]]:
    """Pass requests to ``url``, and close the first connection for ``path`` in place of its answer.

    Yields the address, and the paths of all posts.
    """
    posts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass()

        def do_POST(self) -> None:
            posts.append(self.path)
            self._pass()

        def _pass(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0)) or None
            request = urllib.request.Request(
                f"{url}{self.path}", data, {"content-type": "application/json"}, method=self.command
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    code, answer = response.status, response.read()
            except urllib.error.HTTPError as error:
                code, answer = error.code, error.read()
            if self.path == path and posts.count(path) == 1:
                self.close_connection = True
                return
            self.send_response(code)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", posts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
