"""The queue of reviews: which tasks are reviewed, why, and how each review ended.

A review is an event ``queued`` in the stream `STREAM`, and its number is the number of that event. A worker adds
``begun`` with the conversation that it holds, and one end: ``done``, ``nothing`` or ``failed``. A review without an end
is done by the next worker, so that a kill delays it and loses nothing. ``postponed`` and ``refused`` say why the model
did not reply.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import HermesError
from hermes_exec_agent.runtime.events.log import Conflict
from hermes_exec_agent.runtime.events.storage import connect, log_exists, translate_errors
from hermes_exec_agent.tools.envelope import find_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

STREAM = "reviews"
"""The id of the stream in the event log."""
CauseName = Literal["interval", "correction", "experience", "refinement"]
ENDS = frozenset({"done", "nothing", "failed"})
"""Actions that end a review."""
_ATTEMPTS = 100
_LAST = """
SELECT json_extract(data, '$.upto') FROM events WHERE conversation = 'reviews' AND kind = 'review'
    AND json_extract(data, '$.action') = 'queued' AND json_extract(data, '$.cause') = 'interval'
    AND json_extract(data, '$.person') = ? ORDER BY number DESC LIMIT 1
"""
"""SQL for the number of the last task that was reviewed because of a person's words.

A task is recorded by an event of its own, so its event has at least this number."""
_SHOWN = """
SELECT json_extract(data, '$.upto') FROM events WHERE conversation = 'reviews' AND kind = 'review'
    AND json_extract(data, '$.action') = 'shown' AND json_extract(data, '$.person') = ? ORDER BY number DESC LIMIT 1
"""
"""SQL for the number of the last event that a person was shown."""
_SAME = """
SELECT number FROM events WHERE conversation = 'reviews' AND kind = 'review'
    AND json_extract(data, '$.action') = 'queued' AND json_extract(data, '$.cause') = ?
    AND json_extract(data, '$.tasks') = json(?) ORDER BY number DESC LIMIT 1
"""
"""SQL for the number of a review of the same tasks for the same cause."""
_PENDING = """
SELECT number FROM events WHERE conversation = 'reviews' AND kind = 'review'
    AND json_extract(data, '$.action') = 'queued' AND number NOT IN (
        SELECT json_extract(data, '$.review') FROM events WHERE conversation = 'reviews' AND kind = 'review'
            AND json_extract(data, '$.action') IN ('done', 'nothing', 'failed')
    ) ORDER BY number DESC
"""
"""SQL for the numbers of the reviews that wait."""
_OF_REVIEWS = """
SELECT number, data FROM events WHERE conversation = 'reviews' AND kind = 'review'
    AND coalesce(json_extract(data, '$.review'), number) IN (SELECT value FROM json_each(?)) ORDER BY number
"""
"""SQL for the events of some reviews."""
_RECENT = """
SELECT json_extract(outcome.data, '$.conversation'), json_extract(outcome.data, '$.request'),
    json_extract(outcome.data, '$.task')
FROM events AS outcome JOIN events AS started
    ON started.conversation = json_extract(outcome.data, '$.conversation') AND started.number = 1
WHERE outcome.conversation = 'outcomes' AND outcome.kind = 'outcome' AND outcome.number > ?
    AND json_extract(outcome.data, '$.task') > ? AND json_extract(outcome.data, '$.evidence.kind') = 'none'
    AND coalesce(json_extract(started.data, '$.person'), '') = ?
    AND coalesce(json_extract(started.data, '$.guest'), 0) = 0
    AND coalesce(json_extract(started.data, '$.scripted'), 0) = 0
ORDER BY outcome.number DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class ReviewRules:
    """When a task is reviewed."""

    interval: int = 10
    """Requests of a person between two reviews of their words; 0 for none."""
    least_calls: int = 5
    """Calls of a task that succeeded, from which on a review may make a skill from it; 0 for none."""


@dataclass(frozen=True, slots=True)
class Review:
    """One review."""

    number: int
    cause: CauseName
    person: str
    """The name of the person of its tasks; empty for the owner."""
    tasks: tuple[tuple[str, int], ...]
    """Conversations and numbers of requests, the oldest first."""
    conversation: str = ""
    """The reviewer's own conversation; empty before the review begins."""
    attempts: int = 0
    """How often a worker began it and was cut off."""
    refusals: int = 0
    """How often the model's endpoint refused its request."""
    end: str = ""
    """One of `ENDS`; empty while it waits."""
    reason: str = ""
    kept: tuple[str, ...] = ()
    """What it kept, a line each."""
    undone: bool = False


@dataclass(slots=True)
class _Open:
    """The fields of a review while its events are read."""

    queued: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    attempts: int = 0
    refusals: int = 0


def queue_after_task(log: EventLog, record: Mapping[str, Any], events: Sequence[Event], rules: ReviewRules) -> bool:
    """Queue what is due after a task has ended: every few requests of a person, and after a skill did not help.

    Conversations with a scripted model, and those of guests, are not reviewed.

    Args:
        log: has the record of the task.
        record: see `learning.outcomes`.
        events: of the task.
        rules: when a review is due.

    Returns:
        whether a review was queued.

    Raises:
        HermesError: the log cannot be read or written.
    """
    task, person = (str(record["conversation"]), int(record["request"])), _find_person(log, record)
    if person is None:
        return False
    queued = _has_failed_with_skill(events) and _queue(log, "refinement", person, [task])
    if rules.interval:
        recent = _read_recent(log, person, rules.interval)
        if len(recent) >= rules.interval:
            tasks = [(conversation, request) for conversation, request, _ in reversed(recent)]
            queued = _queue(log, "interval", person, tasks, upto=recent[0][2]) or queued
    return queued


def queue_after_evidence(log: EventLog, record: Mapping[str, Any], rules: ReviewRules) -> bool:
    """Queue what is due after a person or their check judged a task; see `queue_after_task`."""
    task, person = (str(record["conversation"]), int(record["request"])), _find_person(log, record)
    if person is None:
        return False
    if record["result"] == "succeeded":
        return 0 < rules.least_calls <= int(record["calls"]) and _queue(log, "experience", person, [task])
    if record["skills"]:
        return _queue(log, "refinement", person, [task])
    return record["evidence"]["kind"] == "person" and _queue(log, "correction", person, [task])


def _find_person(log: EventLog, record: Mapping[str, Any]) -> str | None:
    """Return the person of a task; None if it is not reviewed."""
    start = log.first(str(record["conversation"]))
    if start is None or start.data.get("guest") or start.data.get("scripted"):
        return None
    return str(start.data.get("person") or "")


def _has_failed_with_skill(events: Sequence[Event]) -> bool:
    """Whether a step failed after a skill was read or run."""
    loaded = False
    for event in events:
        if event.kind == "skill" and event.data.get("outcome") != "registered":
            loaded = True
        elif loaded and event.kind == "result" and find_failure(str(event.data["content"])):
            return True
    return False


def _read_recent(log: EventLog, person: str, limit: int) -> list[tuple[str, int, int]]:
    """Return conversations, requests and numbers of a person's tasks since their last review, the latest first."""
    last = _find_rows(log, _LAST, person)
    after = int(last[0][0]) if last else 0
    return [(str(row[0]), int(row[1]), int(row[2])) for row in _find_rows(log, _RECENT, after, after, person, limit)]


def _queue(log: EventLog, cause: CauseName, person: str, tasks: Sequence[tuple[str, int]], upto: int = 0) -> bool:
    """Queue a review, unless the same one was queued before; return whether it was queued."""
    record = {"action": "queued", "cause": cause, "person": person, "tasks": [list(each) for each in tasks]}
    for _ in range(_ATTEMPTS):
        last = log.last(STREAM)
        if _find_rows(log, _SAME, cause, json.dumps(record["tasks"])):
            return False
        try:
            log.append(STREAM, "review", {**record, "upto": upto}, after=last)
        except Conflict:
            continue
        return True
    raise HermesError("other programs keep changing the queue of reviews; nothing was queued", remedy="try again")


def record_action(log: EventLog, review: int, action: str, **facts: object) -> None:
    """Record what happened to a review.

    Raises:
        HermesError: it could not be recorded.
    """
    log.append(STREAM, "review", {"action": action, "review": review, **facts})


def read_reviews(log: EventLog, numbers: Iterable[int] | None = None) -> list[Review]:
    """Return the reviews with these numbers, or all of them, the oldest first."""
    found: dict[int, _Open] = {}
    if numbers is None:
        events: Iterable[tuple[int, dict[str, Any]]] = ((event.number, event.data) for event in log.events(STREAM))
    else:
        rows = _find_rows(log, _OF_REVIEWS, json.dumps(list(numbers)))
        events = ((int(number), json.loads(data)) for number, data in rows)
    for number, data in events:
        if data["action"] == "queued":
            found[number] = _Open(data)
            continue
        entry = found.get(int(data.get("review", 0)))
        if entry is None:
            continue
        match data["action"]:
            case "begun":
                entry.changes["conversation"] = str(data["conversation"])
                entry.attempts += 1
            case "postponed" | "refused" as action:
                entry.attempts = max(entry.attempts - 1, 0)
                entry.refusals += action == "refused"
            case "undone":
                entry.changes["undone"] = True
            case end if end in ENDS:
                entry.changes |= {
                    "end": end, "reason": str(data.get("reason", "")), "kept": tuple(map(str, data.get("kept", ())))
                }  # fmt: skip
            case _:
                pass
    return [_to_review(number, each) for number, each in found.items()]


def _to_review(number: int, entry: _Open) -> Review:
    tasks = tuple((str(conversation), int(request)) for conversation, request in entry.queued["tasks"])
    return Review(
        number,
        entry.queued["cause"],
        str(entry.queued["person"]),
        tasks,
        attempts=entry.attempts,
        refusals=entry.refusals,
        **entry.changes,
    )


def list_pending(log: EventLog) -> list[Review]:
    """Return the reviews that wait, the oldest first."""
    return read_reviews(log, [int(number) for (number,) in _find_rows(log, _PENDING)])


def has_pending(log: EventLog) -> bool:
    """Return whether a review waits."""
    return bool(_find_rows(log, _PENDING))


def take_news(log: EventLog, person: str) -> list[str]:
    """Return a line for each review that ended since the last call for this person, and that kept or lost something.

    Each is returned once, to one program.
    """
    while True:
        last = log.last(STREAM)
        shown = _find_rows(log, _SHOWN, person)
        since = log.events(STREAM, int(shown[0][0]) if shown else 0)
        ended = {int(each.data["review"]) for each in since if each.data["action"] in ENDS}
        news = [each for each in read_reviews(log, ended) if each.person == person] if ended else []
        if not news:
            return []
        try:
            log.append(STREAM, "review", {"action": "shown", "person": person, "upto": last}, after=last)
        except Conflict:
            continue
        return [describe_end(each) for each in news if each.end != "nothing"]


def _find_rows(log: EventLog, query: str, *values: str | int) -> list[tuple[Any, ...]]:
    """Return the rows of a query; none before the first event."""
    if not log_exists(log.path):
        return []
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        return base.execute(query, values).fetchall()


def describe_end(review: Review) -> str:
    """Return one line about the end of a review."""
    if review.end == "done":
        return f"review {review.number} kept: {'; '.join(review.kept)}. /memory undo takes it back"
    return f"review {review.number}: {review.reason or 'nothing to save'}"


def to_json(review: Review) -> dict[str, Any]:
    """Return a review as JSON values."""
    return asdict(review)
