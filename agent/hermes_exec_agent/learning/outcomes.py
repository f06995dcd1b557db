"""The outcome of every task: one record for each request of a person, derived from the events of its turn.

A record is an event of the kind ``outcome`` in the stream `STREAM`. The program appends one at the end of each turn. A
turn that a kill cut off gets its record later, from the same events. The result is ``unknown`` until something outside
of the model confirms it: the exit code of the person's own check, or a yes or no of the person. Such evidence is a
further event of the same task; the current record of a task is the latest one with evidence, else the first.

How far the requests were searched for tasks without an outcome is kept in the log's database. Without that position, as
in a repaired log, or if the event at it is missing or another one, the search begins again.

The order of events counts, and no clock: ``task`` numbers the tasks, and ``tasks`` of the last event is their number.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.runtime.events.log import Conflict
from hermes_exec_agent.runtime.events.storage import connect, log_exists, translate_errors
from hermes_exec_agent.runtime.events.turn_lock import TurnHeld
from hermes_exec_agent.tools.envelope import find_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.learning.review_queue import ReviewRules
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

_log = logging.getLogger("hermes_exec.agent")

STREAM = "outcomes"
"""The id of the stream in the event log."""
Verdict = Literal["succeeded", "failed", "unknown"]
ANSWER = "answer"
"""The kind of a task without calls."""
_ATTEMPTS = 100
_BATCH = 1000
_TOOLS_OF_KIND = 3
_MOST_FAILURES = 50
_NAME = 60
_DETAIL = 400
CURRENT = """
SELECT number, data FROM (
    SELECT number, data, row_number() OVER (
        PARTITION BY json_extract(data, '$.conversation'), json_extract(data, '$.request')
        ORDER BY json_extract(data, '$.evidence.kind') = 'none', number DESC
    ) AS position FROM events WHERE conversation = 'outcomes' AND kind = 'outcome'
) WHERE position = 1
"""
"""SQL for the current record of each task."""
_MISSING = """
SELECT conversation, number, seq FROM events AS request
WHERE seq > ?1 AND kind = 'user' AND (conversation, number) NOT IN (
    SELECT json_extract(data, '$.conversation'), json_extract(data, '$.request') FROM events
    WHERE conversation = 'outcomes' AND kind = 'outcome' AND seq > ?1
) AND coalesce((
    SELECT json_extract(data, '$.parent') FROM events
    WHERE conversation = request.conversation AND kind = 'started' ORDER BY number LIMIT 1
), '') = '' ORDER BY seq LIMIT ?2
"""
"""Requests after a position without an outcome, which is recorded after its request."""
_OF_TASK = """
SELECT data FROM events WHERE conversation = 'outcomes' AND kind = 'outcome'
AND json_extract(data, '$.conversation') = ? AND json_extract(data, '$.request') = ? ORDER BY number DESC LIMIT 1
"""
_TABLE = "CREATE TABLE IF NOT EXISTS outcomes_position (seq INTEGER NOT NULL, at REAL NOT NULL) STRICT"
_THERE = "SELECT 1 FROM sqlite_schema WHERE name = 'outcomes_position'"
_READ = "SELECT coalesce(max(seq), 0) FROM outcomes_position JOIN events USING (seq, at)"
_FOUND = "SELECT seq, at FROM events WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
_no_audit_due: dict[Path, range] = {}
"""The numbers of tasks after which no audit of a log is due, as the program read them last."""
_STEP = 1_000
"""Events after which the position is worth a write."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What confirms a result, from outside of the model."""

    kind: Literal["check", "person"]
    succeeded: bool
    detail: str
    """One line: the command with its exit code, or the person's reason."""


def derive_outcome(events: Sequence[Event], *, model: str, target: str) -> dict[str, Any]:
    """Return the record of one task, without ``task`` and ``tasks``: its result is unknown.

    Args:
        events: of the turn, from the request to the last one before the next request.
        model: its name, if no reply has one.
        target: where the conversation works.
    """
    usages = [each.data["usage"] for each in events if isinstance(each.data.get("usage"), dict)]
    costs = [usage["cost"] for usage in usages if usage.get("cost") is not None]
    models = [str(each.data["model"]) for each in events if each.kind == "assistant" and each.data.get("model")]
    calls = Counter(flatten(str(each.data["name"]), _NAME) for each in events if each.kind == "call")
    skills = dict.fromkeys(
        (str(each.data["name"]), int(each.data["version"]))
        for each in events
        if each.kind == "skill" and each.data.get("outcome") != "registered"
    )
    failures = [
        {"tool": flatten(str(each.data["name"]), _NAME), "line": line}
        for each in events
        if each.kind == "result" and (line := find_failure(str(each.data["content"])))
    ]
    return {
        "conversation": events[0].conversation,
        "request": events[0].number,
        "result": "unknown",
        "evidence": {"kind": "none", "detail": "", "event": 0},
        "ended": _find_end(events),
        "model": flatten(models[-1] if models else model, _NAME),
        "target": flatten(target, _NAME),
        "kind": name_kind(calls),
        "skills": [{"name": name, "version": version} for name, version in skills],
        "calls": calls.total(),
        "failed": len(failures),
        "failures": failures[:_MOST_FAILURES],
        "tokens": sum(int(usage.get("prompt", 0)) + int(usage.get("completion", 0)) for usage in usages),
        "cost": round(sum(costs), 6) if costs else None,
        "seconds": round(max(events[-1].at - events[0].at, 0.0), 3),
    }


def name_kind(calls: Mapping[str, int]) -> str:
    """Return the kind of a task: the three tools that it called most, in alphabetical order, or ``answer``."""
    most = sorted(calls, key=lambda name: (-calls[name], name))[:_TOOLS_OF_KIND]
    return "+".join(sorted(most)) or ANSWER


def _find_end(events: Sequence[Event]) -> str:
    """Return how the turn ended: ``answered``, the reason of its end, or ``killed``."""
    for event in reversed(events):
        if event.kind == "ended" and "background" not in event.data:
            return flatten(str(event.data.get("reason")), _NAME)
        if event.kind in ("interrupted", "failed"):
            return "killed" if event.data.get("by") == "end" else event.kind
        if event.kind == "assistant":
            return "killed" if event.data.get("tool_calls") else "answered"
    return "killed"


def record_task(
    log: EventLog, conversation: str, request: int, *, model: str, target: str, reviews: ReviewRules | None = None
) -> None:
    """Record the outcome of a turn that ends, while its turn is held; start the audit and the review that are due.

    It blocks the thread of the log. An outcome that cannot be recorded is derived later.
    """
    try:
        events = log.events(conversation, request - 1)
        if not events or events[0].kind != "user":
            return
        record = derive_outcome(events, model=model, target=target)
        tasks = _append(log, lambda tasks: [{**record, "task": tasks + 1, "tasks": tasks + 1}])
        if tasks not in _no_audit_due.get(log.path, ()):
            from hermes_exec_agent.learning.audit import start_due_audit

            _no_audit_due[log.path] = start_due_audit(log, tasks)
        if reviews is not None:
            from hermes_exec_agent.learning.review_queue import queue_after_task
            from hermes_exec_agent.learning.review_schedule import start_worker

            if queue_after_task(log, record, events, reviews):
                start_worker(log)
    except HermesError as error:
        _log.warning("the outcome of a task was not recorded yet: %s", error)


def derive_missing(log: EventLog) -> int:
    """Record the tasks that have no outcome, such as those that a kill cut off; return the number of all tasks.

    A turn that runs, here or in another program, is left out.
    """
    if not log_exists(log.path):
        return 0
    while True:
        before = count_tasks(log)
        if _append(log, lambda tasks: _derive_batch(log, tasks)) == before:
            return before


def _find_missing(log: EventLog) -> list[tuple[str, int]]:
    """Return tasks without an outcome, and keep the position before the first one, or that of the last event."""
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        (last,) = base.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        missing = base.execute(_MISSING, (read_position(base), _BATCH)).fetchall()
        keep_position(base, missing[0][2] - 1 if missing else last)
    return [(conversation, request) for conversation, request, _ in missing]


def _derive_batch(log: EventLog, tasks: int) -> list[dict[str, Any]]:
    missing = _find_missing(log)
    records: list[dict[str, Any]] = []
    known: dict[str, list[Event]] = {}
    for conversation, request in missing:
        if conversation not in known:
            known[conversation] = _read_idle(log, conversation)
        if turn := select_turn(known[conversation], request):
            started = known[conversation][0].data
            record = derive_outcome(turn, model=str(started.get("model", "")), target=str(started.get("target", "")))
            records.append({**record, "task": tasks + len(records) + 1})
    return [{**record, "tasks": tasks + len(records)} for record in records]


def _read_idle(log: EventLog, conversation: str) -> list[Event]:
    """Return the events of a conversation; none while a turn of it runs."""
    try:
        log.refuse_held_turn(conversation)
    except TurnHeld:
        return []
    return log.events(conversation)


def select_turn(events: Sequence[Event], request: int) -> list[Event]:
    """Return the events of the task that begins with a request, among those of its conversation."""
    rest = [each for each in events if each.number >= request]
    end = next((place for place, each in enumerate(rest) if place and each.kind == "user"), len(rest))
    return rest[:end]


def judge_task(log: EventLog, conversation: str, request: int, evidence: Evidence) -> dict[str, Any]:
    """Record evidence for a task, which replaces its outcome; return the new record.

    Raises:
        UsageError: there is no such task, it still runs, or the shell of an agent asks for it.
        HermesError: nothing could be recorded.
    """
    refuse_agent()
    found = read_task(log, conversation, request)
    if found is None:
        derive_missing(log)
        found = read_task(log, conversation, request)
    if found is None:
        raise UsageError(
            f"conversation {to_printable(conversation)} has no task {request} that ended",
            remedy="hermes-exec learn outcomes",
        )
    record: dict[str, Any] = {
        **found,
        "result": "succeeded" if evidence.succeeded else "failed",
        "evidence": {
            "kind": evidence.kind,
            "detail": flatten(evidence.detail, _DETAIL),
            "event": log.last(conversation),
        },
    }
    _append(log, lambda tasks: [{**record, "tasks": tasks}])
    if record["skills"]:
        from hermes_exec_agent.learning.versions import notice_worse

        notice_worse(log)
    _review(log, record)
    return record


def _review(log: EventLog, record: Mapping[str, Any]) -> None:
    """Queue the review that is due after a judgement, if reviews are enabled; an error is logged."""
    from hermes_exec.config.defaults import read_sections
    from hermes_exec_agent.learning.review_queue import queue_after_evidence
    from hermes_exec_agent.learning.review_schedule import read_rules, start_worker

    try:
        rules = read_rules(read_sections())
        if rules is not None and queue_after_evidence(log, record, rules):
            start_worker(log)
    except HermesError as error:
        _log.warning("the task is not reviewed: %s", error)


def find_request(log: EventLog, conversation: str) -> int:
    """Return the number of the latest request of a conversation.

    Raises:
        UsageError: there is none.
    """
    found = [each.number for each in log.events(conversation) if each.kind == "user"]
    if not found:
        raise UsageError("there is no task yet", remedy="a request first")
    return found[-1]


def read_outcomes(log: EventLog, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the current records, the latest task first."""
    if not log_exists(log.path):
        return []
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        rows = base.execute(f"{CURRENT} ORDER BY json_extract(data, '$.task') DESC LIMIT ?", (limit or -1,))
        return [json.loads(data) for _, data in rows]


def count_tasks(log: EventLog) -> int:
    """Return the number of recorded tasks."""
    return _read_count(log, log.last(STREAM))


def read_task(log: EventLog, conversation: str, request: int) -> dict[str, Any] | None:
    """Return the current record of a task; None if it has none yet."""
    if not log_exists(log.path):
        return None
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        row = base.execute(_OF_TASK, (conversation, request)).fetchone()
    return None if row is None else json.loads(row[0])


def _read_count(log: EventLog, last: int) -> int:
    return int(log.events(STREAM, last - 1)[0].data["tasks"]) if last else 0


def _append(log: EventLog, create: Callable[[int], Sequence[Mapping[str, Any]]]) -> int:
    """Append records that ``create`` returns for the number of tasks so far; return the number after them."""
    for _ in range(_ATTEMPTS):
        last = log.last(STREAM)
        records = create(_read_count(log, last))
        try:
            if records:
                log.append_all(STREAM, [("outcome", record) for record in records], after=last)
            return int(records[-1]["tasks"]) if records else _read_count(log, last)
        except Conflict:
            continue
    raise HermesError("other programs keep recording outcomes; this one was not recorded", remedy="try again")


def read_position(base: sqlite3.Connection) -> int:
    """Return the position of the last event before which no task lacks an outcome."""
    if base.execute(_THERE).fetchone() is None:
        return 0
    return int(base.execute(_READ).fetchone()[0])


def keep_position(base: sqlite3.Connection, position: int) -> None:
    """Keep a position, if it is far enough after the one before; a log that cannot be written is searched again."""
    if position < read_position(base) + _STEP:
        return
    with contextlib.suppress(sqlite3.OperationalError), base:
        base.execute("BEGIN IMMEDIATE")
        base.execute(_TABLE)
        if position > read_position(base):  # another program may have kept a later one
            base.execute("DELETE FROM outcomes_position")
            base.execute(f"INSERT INTO outcomes_position {_FOUND}", (position,))


def forget_position(base: sqlite3.Connection) -> None:
    """Remove the position, so that all requests are searched again."""
    base.execute("DROP TABLE IF EXISTS outcomes_position")
