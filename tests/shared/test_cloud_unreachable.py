"""A service that cannot be reached: both vendors' SDKs, and which cause and remedy is told."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.config.registry import find_backend_class
from hermes_exec.errors import PlaceUnavailable
from tests.rigs.bounded import within
from tests.rigs.certificates import write_certificate

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_REFUSAL = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
VENDORS = pytest.mark.parametrize("vendor", ["modal", "daytona"])


@dataclass(frozen=True)
class Fault:
    """An address, the text that names its fault, and whether a request can have been sent."""

    url: str
    cause: str
    remedy: str
    connects: bool = False


@contextlib.contextmanager
def listener(*, accepts: bool = True) -> Generator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if accepts:
            listening.listen(50)
        yield listening


def serve_tls(listening: socket.socket, folder: Path) -> None:
    certificate, key = folder / "server.pem", folder / "server.key"
    write_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass


def answer_connect(listening: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), connection:
            connection.recv(4096)
            connection.sendall(answer)
            connection.recv(1)


@pytest.fixture(params=["refused", "silent", "untrusted", "unknown name", "dead proxy", "odd proxy", "refusing proxy"])
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Fault]:
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with listener(accepts=request.param not in {"refused", "dead proxy"}) as listening:
        port = listening.getsockname()[1]
        at = f"127.0.0.1:{port}"
        match request.param:
            case "refused":
                yield Fault(f"http://{at}", f"{at}: the connection is refused", "network")
            case "silent":
                yield Fault(f"http://{at}", f"{at}: it is connected and gives no answer", "network", connects=True)
            case "untrusted":
                threading.Thread(target=serve_tls, args=(listening, tmp_path), daemon=True).start()
                yield Fault(f"https://localhost:{port}", "its certificate is not trusted", "SSL_CERT_FILE")
            case "unknown name":
                yield Fault("https://no-such-host.invalid", "no-such-host.invalid:443: the name is not found", "DNS")
            case "dead proxy":
                monkeypatch.setenv("HTTPS_PROXY", f"http://person:word@{at}")
                cause = f"the proxy {at} of HTTPS_PROXY: the connection is refused"
                yield Fault("https://service.invalid", cause, "correct HTTPS_PROXY")
            case "odd proxy":
                threading.Thread(target=answer_connect, args=(listening, b"x" * (1 << 20)), daemon=True).start()
                monkeypatch.setenv("HTTPS_PROXY", f"http://person:word@{at}")
                cause = f"the proxy {at} of HTTPS_PROXY: it answers with something that is not HTTP"
                yield Fault("https://service.invalid", cause, "correct HTTPS_PROXY", connects=True)
            case _:
                threading.Thread(target=answer_connect, args=(listening, _REFUSAL), daemon=True).start()
                monkeypatch.setenv("HTTPS_PROXY", f"http://person:word@{at}")
                cause = f"the proxy {at} of HTTPS_PROXY refuses: HTTP/1.1 407"
                yield Fault("https://service.invalid", cause, "correct HTTPS_PROXY")


@pytest.fixture(autouse=True)
def account(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_SERVER_URL", fault.url)
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-x")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-x")
    monkeypatch.setenv("DAYTONA_API_URL", f"{fault.url}/api")
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_x")


@VENDORS
def test_opening_names_the_cause_and_what_can_have_been_created(vendor: str, fault: Fault) -> None:
    async def work() -> None:
        with pytest.raises(PlaceUnavailable) as caught:
            await hermes_exec.open(vendor, audit=False)
        error = caught.value
        assert fault.cause in error.what
        assert fault.remedy in error.remedy
        assert "person:word" not in str(error)
        if vendor == "modal" or not fault.connects:
            assert error.what.endswith("; nothing was created")
        else:
            assert "may be there, and then ends by itself" in error.what

    within(55)(work())


@VENDORS
def test_doctor_names_the_cause_and_does_not_advise_to_run_it(vendor: str, fault: Fault) -> None:
    async def work() -> None:
        (check,) = [each for each in await find_backend_class(vendor).doctor() if each.status == "missing"]
        assert fault.cause in check.detail
        assert fault.remedy in check.remedy
        assert "doctor" not in check.remedy
        assert "person:word" not in check.detail

    within(55)(work())
