"""Clients that are slow, large or many keep nobody else from being answered."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_exec_agent.frontends.http import app, connections, listener
from hermes_exec_agent.models import say
from tests.http.conftest import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.http.conftest import Serve, Served

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
SIGNED = f"Authorization: Bearer {TOKEN}\r\n".encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + SIGNED


def connected(served: Served) -> socket.socket:
    """A connection of one's own."""
    place = urlsplit(served.root)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=60)


def answer(connection: socket.socket) -> bytes:
    """What comes next, up to the end of its first lines; empty where it was ended."""
    said = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in said and (piece := connection.recv(4096)):
            said += piece
    return said


def test_headers_that_come_a_byte_at_a_time_are_not_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_S", 0.5)
    served = serve(say("Never."))
    with closing(connected(served)) as slow:
        slow.sendall(HEALTH[:-4] + b"\r\nX-Slow: ")
        slow.settimeout(0.05)
        ended = False
        for _ in range(1200):
            try:
                slow.sendall(b"x")
                ended = not slow.recv(4096)
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended
    assert served.log.conversations() == []


def test_a_body_that_does_not_come_is_not_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_BODY_S", 0.2)
    with closing(connected(serve(say("Never.")))) as slow:
        slow.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        said = answer(slow)
    assert b" 408 " in said
    assert b"x-should-retry: true" in said


def test_lines_that_are_too_long_or_too_many_are_refused(serve: Serve) -> None:
    served = serve(say("Never."))
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(200))
    for head in (b"X-Long: " + b"x" * 20_000 + b"\r\n", lines):
        with closing(connected(served)) as wide:
            wide.sendall(HEALTH[:-2] + head + b"\r\n")
            assert b" 400 " in answer(wide)
    with closing(connected(served)) as good:
        good.sendall(HEALTH)
        assert b" 200 " in answer(good)


def test_a_body_whose_length_is_not_told_is_bounded_too(serve: Serve) -> None:
    served = serve(say("Never."))
    with closing(connected(served)) as endless:
        endless.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (1 << 16, b"x" * (1 << 16))
        with suppress(ConnectionError):
            for _ in range(200):
                endless.sendall(chunk)
        assert b" 413 " in answer(endless)


MODELS = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + SIGNED + b"\r\n"


def asked(served: Served, request: bytes) -> bytes:
    """The first lines of the answer to one request, over a connection of its own."""
    with closing(connected(served)) as here:
        here.sendall(request)
        return answer(here)


def test_half_open_connections_turn_no_client_away(serve: Serve) -> None:
    served = serve(say("Never."))
    with ExitStack() as stack:
        kept = stack.enter_context(closing(connected(served)))
        kept.sendall(MODELS)
        assert b" 200 " in answer(kept)
        for _ in range(3 * connections.CONNECTIONS):
            half = stack.enter_context(closing(connected(served)))
            half.sendall(b"GET /v1/models HTTP/1.1\r\n")
        assert b" 200 " in asked(served, HEALTH)
        assert b" 200 " in asked(served, MODELS)
        kept.sendall(MODELS)  # what had shown the token has stayed
        assert b" 200 " in answer(kept)


def test_clients_with_the_token_leave_room_for_a_look_at_its_health(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], object]], None]
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 4)
    monkeypatch.setattr(connections, "RESERVED", 1)
    served = serve(say("Never."))
    with ExitStack() as stack:
        held = [stack.enter_context(closing(connected(served))) for _ in range(3)]
        for each in held:
            each.sendall(MODELS)
            assert b" 200 " in answer(each)
        assert b" 503 " in asked(served, MODELS)
        assert b" 200 " in asked(served, HEALTH)
        held[0].close()
        until(lambda: b" 200 " in asked(served, MODELS))


def test_a_connection_that_sends_nothing_is_closed_soon(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_LINES_S", 0.2)
    with closing(connected(serve(say("Never.")))) as silent:
        assert answer(silent) == b""


def test_a_client_that_sends_on_after_its_answer_does_not_confuse_the_next_one(serve: Serve) -> None:
    body = json.dumps({"model": "main", "messages": []}).encode()
    with closing(connected(serve(say("Never.")))) as here:
        here.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + HEALTH)
        both = answer(here)
        while b'"ok"' not in both and (piece := here.recv(4096)):
            both += piece
    assert both.index(b" 400 ") < both.index(b" 200 ")
