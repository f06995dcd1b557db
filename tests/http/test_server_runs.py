"""Runs over HTTP: their state, events, stops and approvals; and the list of conversations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from hermes_exec_agent.frontends.http.conversation_pool import ConversationPool
from hermes_exec_agent.frontends.http.runs import RequestApprover
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.tools.tool import Approvals
from tests.http.conftest import TOKEN, Held, Serve, Served
from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

ASKED: dict[str, Any] = {"approvals": Approvals("ask"), "person": RequestApprover()}


def call(served: Served, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request; return the status and the body."""
    data = None if body is None else json.dumps(body).encode()
    given = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"{served.root}{path}", data, given)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def follow(served: Served, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
    """The events of a run, to its end."""
    given = {"Authorization": f"Bearer {TOKEN}", "Last-Event-ID": str(after)}
    request = urllib.request.Request(f"{served.url}/runs/{id}/events", None, given)
    with urllib.request.urlopen(request, timeout=60) as response:
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def start(served: Served, **more: Any) -> str:
    status, found = call(served, "/v1/runs", {"input": "work", **more})
    assert (status, found["status"]) == (202, "started"), found
    return str(found["run_id"])


def decide(served: Served, id: str, approval: str, choice: str) -> int:
    return call(served, f"/v1/runs/{id}/approval", {"choice": choice, "approval_id": approval})[0]


def test_a_run_has_events_and_a_result_and_both_can_be_read_again(serve: Serve) -> None:
    served = serve(ask(("terminal", {"command": "echo made > made"}), text="I make it."), say("Made."))
    id = start(served)
    events = list(follow(served, id))
    names = [each["event"] for each in events if each["event"] != "message.delta"]
    assert names == ["run.started", "tool.started", "tool.completed", "run.completed"]
    assert "".join(each["delta"] for each in events if each["event"] == "message.delta") == "I make it.Made."
    assert list(follow(served, id)) == events
    assert list(follow(served, id, after=len(events) - 1)) == events[-1:]
    _, state = call(served, f"/v1/runs/{id}")
    assert (state["status"], state["output"], state["usage"]["total_tokens"] > 0) == ("completed", "Made.", True)
    assert served.log.conversations()[0].id == state["session_id"]


def test_a_run_goes_on_in_the_conversation_that_is_named(serve: Serve) -> None:
    served = serve(say("One."), say("Two."))
    first = start(served)
    list(follow(served, first))
    _, state = call(served, f"/v1/runs/{first}")
    second = start(served, session_id=state["session_id"])
    list(follow(served, second))
    (conversation,) = served.log.conversations()
    assert conversation.turns == 2
    _, messages = call(served, f"/api/sessions/{conversation.id}/messages")
    assert [each["role"] for each in messages["data"]] == ["user", "assistant", "user", "assistant"]


def test_a_stop_ends_the_turn_and_its_events(serve: Serve) -> None:
    held = Held()
    served = serve(held)
    id = start(served)
    assert held.begun.acquire(timeout=30)
    assert call(served, f"/v1/runs/{id}/stop", {})[1]["status"] == "stopping"
    assert list(follow(served, id))[-1]["event"] == "run.cancelled"
    assert call(served, f"/v1/runs/{id}")[1]["status"] == "cancelled"


@pytest.mark.parametrize("choice", ["once", "deny"])
def test_a_call_runs_only_if_the_client_allows_it(serve: Serve, choice: str) -> None:
    served = serve(ask(("terminal", {"command": "touch made"})), say("Done."), **ASKED)
    id = start(served)
    seen: list[str] = []
    for event in follow(served, id):
        seen.append(event["event"])
        if event["event"] == "approval.request":
            assert "touch made" in event["summary"]
            assert call(served, f"/v1/runs/{id}")[1]["status"] == "waiting_for_approval"
            assert decide(served, id, event["approval_id"], choice) == 200
            assert decide(served, id, event["approval_id"], choice) == 400
    assert seen.count("approval.request") == 1
    (result,) = [
        json.loads(event.data["content"])
        for event in served.log.events(served.log.conversations()[0].id)
        if event.kind == "result"
    ]
    assert result["ok"] == (choice == "once")
    assert decide(served, id, "0" * 12, choice) == 400


def test_a_request_without_a_run_is_not_asked_and_denied(serve: Serve) -> None:
    served = serve(ask(("terminal", {"command": "touch made"})), say("Done."), **ASKED)
    call(served, "/v1/responses", {"input": "work"})
    (result,) = [
        event.data["content"] for event in served.log.events(served.log.conversations()[0].id) if event.kind == "result"
    ]
    assert "no user can be asked" in result


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/runs", {"input": ""}, 400),
        ("/v1/runs", {"input": "x", "colour": 1}, 400),
        ("/v1/runs", {"input": "x", "session_id": "nothing"}, 400),
        ("/v1/runs/run_0", None, 404),
        ("/v1/runs/run_0/events", None, 404),
        ("/v1/runs/run_0/stop", {}, 404),
        ("/v1/runs/run_0/approval", {"choice": "once"}, 404),
        ("/api/sessions?limit=0", None, 400),
        (f"/api/sessions?limit={'9' * 5000}", None, 400),
        ("/api/sessions/nothing/messages", None, 404),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(serve: Serve, path: str, body: Any, status: int) -> None:
    found, answer = call(serve(say("No.")), path, body)
    assert (found, bool(answer["error"]["message"])) == (status, True)


def test_an_idempotency_key_is_refused_as_it_is_not_kept(serve: Serve) -> None:
    assert call(serve(say("No.")), "/v1/runs", {"input": "x"}, **{"Idempotency-Key": "k"})[0] == 400


def test_the_server_ends_with_its_runs(serve: Serve) -> None:
    held = Held()
    served = serve(held, grace_s=0.1)
    start(served)
    assert held.begun.acquire(timeout=30)
    served.stop()
    assert held.ended.acquire(timeout=30)
    events = served.log.events(served.log.conversations()[0].id)
    assert events[-1].kind == "interrupted"


def await_end(served: Served, id: str, person: str) -> None:
    headers = {"X-Hermes-Person": person} if person else {}
    wait_until(lambda: call(served, f"/v1/runs/{id}", **headers)[1]["status"] == "completed")


def test_a_run_that_its_client_left_while_its_target_opened_does_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served = serve(ask(("terminal", {"command": f"touch {tmp_path}/made"})), say("Done."))
    opening, left = threading.Event(), threading.Event()
    acquire = ConversationPool.acquire

    @contextlib.asynccontextmanager
    async def slow(self: Any, *given: Any) -> AsyncGenerator[Any]:
        opening.set()
        await asyncio.to_thread(left.wait)
        async with acquire(self, *given) as conversation:
            yield conversation

    monkeypatch.setattr(ConversationPool, "acquire", slow)
    address = urlsplit(served.root)
    with closing(socket.create_connection((address.hostname or "", address.port or 0))) as client:
        body = b'{"input": "work"}'
        client.sendall(
            b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN.encode(), len(body), body)
        )
        assert opening.wait(30)
    monkeypatch.undo()
    left.set()
    served.stop()
    assert not (tmp_path / "made").exists()


def test_a_list_has_the_conversations_of_one_person_in_pages(serve: Serve) -> None:
    served = serve(say("A."), say("B."), say("C."))
    for person in ("", "", "ada"):
        id = start(served, **({"person": person} if person else {}))
        await_end(served, id, person)
        assert person == "" or call(served, f"/v1/runs/{id}")[0] == 404
    _, page = call(served, "/api/sessions?limit=1")
    assert (len(page["data"]), page["has_more"]) == (1, True)
    _, rest = call(served, f"/api/sessions?limit=5&before={page['data'][0]['id']}")
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    _, other = call(served, "/api/sessions", **{"X-Hermes-Person": "ada"})
    assert len(other["data"]) == 1
    assert call(served, "/v1/capabilities")[1]["features"]["run_events_sse"]
