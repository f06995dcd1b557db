"""Git repositories, and an HTTPS server that serves them with ``git http-backend``."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tests.rigs.certificates import write_certificate

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

_BACKEND = ("git", "-c", "protocol.version=2", "http-backend")


def run_git(folder: Path, *argv: str) -> str:
    """Run git in a repository of a test, as a fixed author."""
    command = ["git", "-C", str(folder), "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", *argv]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def commit_files(folder: Path, files: Mapping[str, str | bytes]) -> str:
    """Write files, commit them, and return the commit; the repository is created with the first ones."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        run_git(folder, "init", "--quiet", "--initial-branch=main")
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data.encode() if isinstance(data, str) else data)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message=change")
    return run_git(folder, "rev-parse", "HEAD")


class _Handler(BaseHTTPRequestHandler):
    root: str
    redirect: str
    requests: list[str]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        self.requests.append(self.path)
        if path.startswith("/redirect"):
            self.send_response(302)
            self.send_header(
                "Location", self.redirect + path.removeprefix("/redirect") + (f"?{query}" if query else "")
            )
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        environment = {
            **os.environ, "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_GLOBAL": "/dev/null",
        }  # fmt: skip
        done = subprocess.run(_BACKEND, input=body, capture_output=True, check=False, env=environment)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class GitServer:
    """A running server of the repositories in a folder."""

    def __init__(self, port: int, certificate: Path, requests: list[str]) -> None:
        self.url = f"git+https://127.0.0.1:{port}"
        self.certificate = certificate
        self.requests = requests
        """The paths of all requests."""


@contextmanager
def serve_repositories(root: Path, *, redirect: str = "") -> Generator[GitServer]:
    """Serve the repositories below a folder; ``/redirect/…`` leads to ``redirect``."""
    certificate = root / "certificate.pem"
    key = root / "key.pem"
    write_certificate(certificate, key)
    requests: list[str] = []
    handler = type("Handler", (_Handler,), {"root": str(root), "redirect": redirect, "requests": requests})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield GitServer(server.server_address[1], certificate, requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
