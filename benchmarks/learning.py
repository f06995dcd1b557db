"""Learning: how long an audit of many tasks takes, and counting by version, and what a month of learning stores."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.figures import Figure, Table, median
from benchmarks.memory import MONTH, MONTH_MB, Vocabulary, create_conversation, read_shapes
from benchmarks.replies import Replies
from benchmarks.skill_recall import read_skills
from hermes_exec.config.load import load_settings
from hermes_exec_agent.learning.audit import STREAM as AUDITS
from hermes_exec_agent.learning.audit import TASKS, OutcomeTables, create_report, run_audits
from hermes_exec_agent.learning.outcomes import STREAM, Evidence, derive_missing, judge_task, read_outcomes
from hermes_exec_agent.learning.review import Worker
from hermes_exec_agent.learning.review_queue import ReviewRules, list_pending, queue_after_task
from hermes_exec_agent.learning.versions import count_from_events, read_versions
from hermes_exec_agent.memory.note_writer import write_program_note
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.skills.registry.home import VARIABLE, default_home
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.skill_makers import guide

if TYPE_CHECKING:
    from collections.abc import Generator

AUDITED = 10_000
"""Tasks of the log that is audited."""
AUDIT_S = 1.0
_EACH = 10
"""Tasks of a conversation."""
_SKILLS = 50
_VERSIONS = 3
_KEPT_WORDS = 150
"""Words of an entry, and of a note's sentences."""


@contextmanager
def _open_log() -> Generator[EventLog]:
    """Open a log in a state folder of its own, which has a registry and no settings."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o700)
        environ = {VARIABLE: str(folder / "registry"), "XDG_CONFIG_HOME": str(folder / "config")}
        with mock.patch.dict(os.environ, environ), EventLog(folder / "conversations.sqlite") as log:
            yield log


def _register(log: EventLog, skills: int, versions: int) -> None:
    registry = Registry(default_home())
    for number in range(versions):
        for each in islice(read_skills(), skills):
            text = f"Step {number}: look at the files, and run the tests.\n" * 40
            source = log.path.parent / "source" / str(number)
            source.mkdir(parents=True, exist_ok=True)
            guide(registry.home, source, each.name, each.summary, text, registry=registry)


def measure_audit(tasks: int, rounds: int) -> list[Figure]:
    """Measure the audit of the last 15 of so many tasks, and counting the outcomes of versions."""
    with _open_log() as log:
        _register(log, _SKILLS, 1)
        _add_outcomes(log, tasks)
        taken: list[float] = []
        with OutcomeTables(log.path) as tables:
            report = create_report(tables, 1, TASKS, [])
        for number in range(rounds):  # each time only the last tasks are left
            log.append(AUDITS, "audit", {"number": 2 * number + 1, "upto": tasks - TASKS, "report": report})
            began = time.perf_counter()
            if run_audits(log) != [2 * number + 2]:
                raise AssertionError("not one audit was due")
            taken.append(time.perf_counter() - began)
        began = time.perf_counter()
        read_versions(log)
        counted = time.perf_counter() - began
        with closing(sqlite3.connect(log.path)) as base:
            began = time.perf_counter()
            count_from_events(base)
            whole = time.perf_counter() - began
    return [
        Figure(f"audit of {tasks:,} tasks", "s", median(taken), "the limit", AUDIT_S, 1.0),
        Figure(f"counting versions in {tasks:,} tasks", "ms", counted * 1e3, "from all events", whole * 1e3, 1.0),
    ]


def _add_outcomes(log: EventLog, tasks: int) -> None:
    """Append tasks with their outcomes, as turns and evidence record them."""
    names = [each.name for each in islice(read_skills(), _SKILLS)]
    started: Any = ("started", {"target": "local", "model": "m"})
    for number in range(0, tasks, _EACH):
        turns = [turn for task in range(number, min(number + _EACH, tasks)) for turn in _create_turn(task, names)]
        log.append_all(f"20260101-{number:06}", [started, *turns])
    derive_missing(log)
    records = [each | {"result": "succeeded", "evidence": {"kind": "check"}} for each in read_outcomes(log)[::2]]
    log.append_all(STREAM, [("outcome", {**each, "tasks": tasks}) for each in records])


def _create_turn(number: int, names: list[str]) -> list[Any]:
    return [
        ("user", {"content": "sort the list of suppliers by their names"}),
        ("skill", {"name": names[number % len(names)], "version": 1, "outcome": "ok"}),
        ("call", {"id": "1", "name": "terminal"}),
        ("result", {"id": "1", "name": "terminal", "content": f'{{"exit_code": {number % 3}, "output": "x"}}'}),
        ("assistant", {"content": "Done.", "tool_calls": [], "model": "m", "usage": {"prompt": 900}}),
    ]


def measure_month(count: int, vocabulary: Vocabulary) -> list[Figure | Table]:
    """Measure the files of conversations with their notes, outcomes, evidence, audits and reviews, and of skills."""
    shapes = read_shapes()
    with _open_log() as log, Replies() as replies:
        _register(log, max(_SKILLS * count // MONTH, 1), _VERSIONS)
        for number in range(count):
            name = f"20260101-{number:06}"
            log.append_all(name, list(create_conversation(shapes[number % len(shapes)], vocabulary)))
            write_program_note(log, name)
            _learn(log, name, vocabulary, has_evidence=number % 3 == 0)
            if list_pending(log):
                asyncio.run(_review(log, replies.port))
        run_audits(log)
        reviews = len(log.streams("reviews")) and log.last("reviews")
        with closing(sqlite3.connect(log.path)) as base:
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        parts = _measure_parts(log.path.parent)
    scale = MONTH / count
    rows = tuple((name, f"{size * scale / 1e6:.1f} MB") for name, size in parts.items())
    remarks = (f"{reviews:,} events of reviews.", *(("Scaled up from a part of them.",) if count < MONTH else ()))
    size = sum(parts.values()) * scale / 1e6
    return [
        Figure(f"a month of learning, {MONTH:,} conversations", "MB", size, "the limit", MONTH_MB, 1.0),
        Table(f"A month of learning, {MONTH:,} conversations", ("files", "size"), rows, remarks),
    ]


def _learn(log: EventLog, name: str, vocabulary: Vocabulary, *, has_evidence: bool) -> None:
    """Record what a model's note adds, the outcomes of a conversation, some evidence, and the reviews that are due."""
    events = log.events(name)
    sentences = [{"part": "done", "text": vocabulary.text(_KEPT_WORDS), "events": [2]}]
    note = {"conversation": name, "upto": len(events), "begun": events[0].at, "last": events[-1].at}
    log.append("notes", "note", {**note, "sentences": sentences, "how": "model"})
    derive_missing(log)
    for request in [each.number for each in events if each.kind == "user"]:
        if has_evidence:
            judge_task(log, name, request, Evidence("check", succeeded=True, detail="make check: exit code 0"))
        queue_after_task(log, {"conversation": name, "request": request}, events, ReviewRules())


async def _review(log: EventLog, port: int) -> None:
    models = Models(Endpoint("m", base_url=f"http://127.0.0.1:{port}/v1", window=1 << 20))
    try:
        await Worker(log, models, load_settings(), lambda _: None).run_pending()
    finally:
        await models.close()


def _measure_parts(folder: Path) -> dict[str, int]:
    """Return the bytes of the log, the reports and the registry."""
    sizes = {"event log": 0, "reports of audits": 0, "registry of skills": 0}
    for path in folder.rglob("*"):
        if path.is_file():
            part = path.relative_to(folder).parts[0]
            kind = {"audits": "reports of audits", "registry": "registry of skills"}.get(part, "event log")
            sizes[kind] += path.stat().st_size if part != "source" else 0
    return sizes


def figures(part: int) -> list[Figure | Table]:
    """Measure everything, by how much less than the whole."""
    return [*measure_audit(AUDITED // part, 5), *measure_month(MONTH // part, Vocabulary())]
