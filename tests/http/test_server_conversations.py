"""When a conversation of the server can be gone on with, and when it ends with what runs in its background."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import openai
import pytest

from hermes_exec_agent.models import ask, say
from tests.http.conftest import Held
from tests.http.test_server_completions import HELLO, client
from tests.http.test_server_guard import request
from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai import OpenAI

    from tests.http.conftest import Serve, Served


def conversation_of(done: Any) -> dict[str, str]:
    """What goes on with the same conversation."""
    return {"conversation": done.model_extra["conversation"]}


def refused(here: OpenAI, same: dict[str, str], **more: Any) -> None:
    """One that is told to come later, without anything having run."""
    with pytest.raises(openai.ConflictError) as error:
        here.chat.completions.create(model="main", messages=HELLO, extra_body=same, **more)
    assert error.value.code == "turn_running"
    assert error.value.response.headers["Retry-After"]
    assert error.value.response.headers["x-should-retry"] == "true"


def test_a_turn_that_another_program_runs_is_a_conflict_and_the_next_one_is_not(serve: Serve) -> None:
    served = serve(say("One."), say("Two."))
    with client(served) as here:
        same = conversation_of(here.chat.completions.create(model="main", messages=HELLO))
        turn = served.log.acquire_turn(same["conversation"])
        refused(here, same)
        refused(here, same, stream=True)
        served.log.append_all(same["conversation"], [("user", {"content": "of another program"})], turn=turn)
        served.log.append_all(same["conversation"], [("assistant", {"content": "seen"})], turn=turn)
        served.log.release_turn(turn)
        done = here.chat.completions.create(model="main", messages=HELLO, extra_body=same)
    assert done.choices[0].message.content == "Two."


def test_a_turn_that_this_server_runs_is_a_conflict_too(serve: Serve) -> None:
    held = Held()
    served = serve(held)
    with client(served) as here:
        first = threading.Thread(target=lambda: here.chat.completions.create(model="main", messages=HELLO), daemon=True)
        first.start()
        assert held.begun.acquire(timeout=60)
        (running,) = served.log.conversations()
        refused(here, {"conversation": running.id})
        held.go.set_result(None)
        first.join(60)
        here.chat.completions.create(model="main", messages=HELLO, extra_body={"conversation": running.id})


def open_ones(served: Served) -> int:
    """How many conversations are open."""
    _, text, _ = request(served, "GET", "/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith("hermes_exec_conversations_open ")]
    return int(float(line.split()[1]))


def start(nap: str) -> Any:
    return ask(("terminal", {"command": f"(setsid {nap} &); {nap}", "background": True}))


def test_what_runs_in_the_background_keeps_a_conversation_open_until_it_ends(
    serve: Serve, nap: str, running: Callable[[str], list[int]]
) -> None:
    served = serve(start(nap), say("Started."), say("Nothing."), keep_s=0.2, idle_s=1000.0)
    with client(served) as here:
        for _ in range(2):
            here.chat.completions.create(model="main", messages=HELLO)
    wait_until(lambda: open_ones(served) == 1)
    wait_until(lambda: len(running(nap)) >= 2)
    for pid in running(nap):
        with contextlib.suppress(ProcessLookupError):  # the shell ends with its program
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: open_ones(served) == 0)


def test_an_idle_conversation_ends_with_what_runs_in_its_background(
    serve: Serve, nap: str, running: Callable[[str], list[int]]
) -> None:
    served = serve(start(nap), say("Started."), keep_s=0.2, idle_s=1.0)
    with client(served) as here:
        same = conversation_of(here.chat.completions.create(model="main", messages=HELLO))
    wait_until(lambda: open_ones(served) == 0)
    wait_until(lambda: not running(nap))
    wait_until(lambda: served.log.events(same["conversation"])[-1].kind == "ended")
    (line,) = served.log.events(same["conversation"])[-1].data["background"]
    assert line.endswith(f": (setsid {nap} &); {nap}")
