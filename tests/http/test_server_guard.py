"""Who may ask, and what is told to whom."""

from __future__ import annotations

import gzip
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_exec_agent.errors import NoModel
from hermes_exec_agent.frontends.http import app, protocol
from hermes_exec_agent.frontends.http.guard import is_equal_constant_time, is_loopback, parse_host
from hermes_exec_agent.models import ask, say
from tests.http.conftest import TOKEN, Serve, Served

BODY = json.dumps({"model": "main", "messages": [{"role": "user", "content": "hello"}]})
DEFAULTS = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
Answer = tuple[int, Any, http.client.HTTPMessage]


def request(served: Served, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Answer:
    """Status, document (or text) and headers."""
    place = urlsplit(served.root)
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {**DEFAULTS, **named})
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text, answer.headers
    finally:
        connection.close()


def asked(served: Served, body: str | bytes = BODY, **headers: str) -> Answer:
    return request(served, "POST", "/v1/chat/completions", body, **headers)


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00ff"])
def test_without_the_token_nothing_is_answered(serve: Serve, given: str) -> None:
    served = serve(say("Never."))
    headers = {"Authorization": given}
    for path in ("/v1/models", "/metrics"):
        assert request(served, "GET", path, **headers)[0] == 401
    status, told, answer = asked(served, **headers)
    assert (status, told["error"]["code"]) == (401, "invalid_api_key")
    assert answer["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in json.dumps(told)
    assert served.log.conversations() == []


def test_with_the_token_it_is(serve: Serve) -> None:
    served = serve(say("Hello."))
    status, told, _ = asked(served)
    assert (status, told["choices"][0]["message"]["content"]) == (200, "Hello.")


def test_health_and_readiness_ask_for_no_token(serve: Serve) -> None:
    served = serve(say("Never."))
    assert request(served, "GET", "/health", Authorization="")[:2] == (200, {"status": "ok"})
    assert request(served, "GET", "/ready", Authorization="")[:2] == (200, {"ready": True, "why": ""})


def test_without_a_model_it_lives_but_is_not_ready(serve: Serve) -> None:
    served = serve(models=None, why=NoModel("there is no key"))
    assert request(served, "GET", "/health")[0] == 200
    assert request(served, "GET", "/ready")[:2] == (503, {"ready": False, "why": "no model is set up"})
    status, told, answer = asked(served)
    assert (status, answer["x-should-retry"]) == (503, "false")
    assert "there is no key" in told["error"]["message"]


def test_a_memory_that_fails_is_told_and_not_looked_at_for_each_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_FRESH_S", 3600.0)
    asked_for: list[int] = []

    async def memory() -> str:
        asked_for.append(1)
        return "memory: gone"

    served = serve(say("Never."), memory=memory)
    for _ in range(3):
        assert request(served, "GET", "/ready")[:2] == (503, {"ready": False, "why": "memory: gone"})
    assert len(asked_for) == 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1"])
def test_a_name_that_is_not_ours_is_refused(serve: Serve, host: str) -> None:
    served = serve(say("Never."))
    for path in ("/health", "/v1/models", "/nothing"):
        assert request(served, "GET", path, Host=host)[0] == 421
    assert asked(served, Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080", "AGENT.test"])
def test_a_name_of_ours_is_not(serve: Serve, host: str) -> None:
    assert request(serve(say("Never.")), "GET", "/health", Host=host)[0] == 200


def test_a_page_of_another_site_is_refused(serve: Serve) -> None:
    served = serve(say("Never."))
    assert asked(served, Origin="https://evil.example")[0] == 403
    assert asked(served, Origin="null")[0] == 403
    assert asked(served, Content_Type="text/plain")[0] == 415
    assert served.log.conversations() == []


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    status, told, _ = asked(serve(say("Never.")), b'{"messages": "' + b"x" * protocol.MAX_BODY + b'"}')
    assert status == 413
    assert told["error"]


def test_a_compressed_body_is_not_unpacked(serve: Serve) -> None:
    status, _, _ = asked(serve(say("Never.")), gzip.compress(BODY.encode()), Content_Encoding="gzip")
    assert status == 400


@pytest.mark.parametrize("body", ["", "{", "[]", '{"messages": 1}', "[" * 100_000])
def test_a_body_that_makes_no_sense_is_refused(serve: Serve, body: str) -> None:
    status, told, _ = asked(serve(say("Never.")), body)
    assert status == 400
    assert told["error"]["type"] == "invalid_request_error"


def test_what_is_not_here_is_told_in_the_same_form(serve: Serve) -> None:
    served = serve(say("Never."))
    for method, path, code in (("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405)):
        status, told, _ = request(served, method, path)
        assert status == code
        assert told["error"]["message"]


def test_figures_tell_turns_tokens_and_tools(serve: Serve) -> None:
    served = serve(ask(("terminal", {"command": "true"}), ("made_up", {})), say("Done."))
    asked(served)
    status, text, headers = request(served, "GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'hermes_exec_turns_total{outcome="answered"} 1.0' in text
    assert 'hermes_exec_tool_calls_total{ok="true",tool="terminal"} 1.0' in text
    assert 'hermes_exec_tool_calls_total{ok="false",tool="unknown"} 1.0' in text
    assert "hermes_exec_turns_running 0.0" in text
    assert 'hermes_exec_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text


def test_tokens_are_compared_whole() -> None:
    assert is_equal_constant_time("one", "one")
    assert not is_equal_constant_time("one", "on")
    assert not is_equal_constant_time("", "one")
    assert not is_equal_constant_time("\ud800", "one")


def test_names_and_addresses_are_read_as_they_are_meant() -> None:
    assert [parse_host(each) for each in ("A.b:1", "[::1]:2", "a")] == ["a.b", "::1", "a"]
    assert {parse_host(each) for each in ("", "[::1", "a@b", "a/b", "a?b", "a#b", "a:b", "a b", "a\\b")} == {""}
    assert is_loopback("127.0.0.9")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("")
    assert not is_loopback("example.org")
