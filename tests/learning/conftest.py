"""Outcomes in logs of the tests' own, with plausible tasks; libraries of skills, and a clock that a test moves."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.runtime.events import EventLog
from tests.rigs.curator_library import Clock, Library
from tests.runtime.conftest import talk

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.runtime.events import Kind

__all__ = ["talk"]


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "conversations.sqlite")


def result(name: str, content: object) -> tuple[Kind, dict[str, Any]]:
    return ("result", {"id": "1", "name": name, "content": json.dumps(content)})


def add_task(log: EventLog, conversation: str, request: str = "fix it", seed: int = 0, **more: Any) -> int:
    """Append the events of a turn, with calls that fail by the seed; return the number of its request."""
    draw = random.Random(seed)
    events: list[tuple[Kind, dict[str, Any]]] = []
    if not log.last(conversation):
        events.append(("started", {"target": "local", "model": "m", "parent": more.get("parent", ""), "system": ""}))
    events.append(("user", {"content": request}))
    for _ in range(draw.randrange(4)):
        name = draw.choice(["terminal", "read_file", "patch"])
        events.append(("assistant", {"tool_calls": [{}], "model": "m", "usage": {"prompt": 100, "cost": 0.01}}))
        events.append(("call", {"id": "1", "name": name}))
        failed = draw.random() < 0.4
        error = {"type": "missing", "message": f"no file {draw.randrange(3)}"}
        events.append(result(name, {"ok": not failed, **({"error": error} if failed else {})}))
    for name, version in more.get("skills", ()):
        events.append(("skill", {"name": name, "version": version, "outcome": "ok"}))
    events.append(("assistant", {"tool_calls": [], "model": "m", "usage": {"prompt": 100, "completion": 5}}))
    appended = log.append_all(conversation, events, turn=more.get("turn"))
    return next(each.number for each in appended if each.kind == "user")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def library(tmp_path: Path, clock: Clock) -> Library:
    """A registry in which counting has begun."""
    library = Library(tmp_path)
    library.registry.prepare()
    library.counter.read_uses(begin=True)
    return library
