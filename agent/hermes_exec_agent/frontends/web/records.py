"""What the pages show from the files of this user: conversations, slots, the outbox, the audit and costs."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hermes_exec.config.load import load_settings
from hermes_exec.config.paths import audit_file
from hermes_exec.observe.history import read_audit
from hermes_exec_agent.learning.audit import OutcomeTables, create_report, read_audits
from hermes_exec_agent.learning.audit_report import format_markdown
from hermes_exec_agent.runtime.events.storage import log_exists

if TYPE_CHECKING:
    from hermes_exec.observe.history import AuditRecord
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.events.event import Event

_PAGE = 50
_EVENTS = 200
_COMMANDS = 200
_PIECES = 100
_DAYS = 7
_REPORTS = 3


def list_conversations(log: EventLog, before: str) -> dict[str, Any]:
    """Return a page of conversations, the newest first."""
    found = log.conversations(_PAGE, before or None)
    return {"items": [asdict(each) for each in found], "more": len(found) == _PAGE}


def read_conversation(log: EventLog, id: str, before: int) -> dict[str, Any]:
    """Return the latest events of a conversation, or those before a number.

    Raises:
        UsageError: there is no such conversation.
    """
    id = log.find(id)
    last = min(log.last(id), before - 1) if before else log.last(id)
    events = [each for each in log.events(id, max(0, last - _EVENTS)) if each.number <= last]
    start = log.start(id)
    return {
        "id": id, "title": log.title(id), "target": start.target, "parent": start.parent, "person": start.person,
        "events": [_describe_event(each) for each in events], "earlier": bool(events) and events[0].number > 1,
    }  # fmt: skip


def _describe_event(event: Event) -> dict[str, Any]:
    data = event.data
    usage: dict[str, Any] = data.get("usage") or {}
    row: dict[str, Any] = {"number": event.number, "at": event.at, "kind": event.kind}
    match event.kind:
        case "user" | "steered" | "warning" | "ended":
            row |= {"text": data.get("content", ""), "note": data.get("reason", "")}
        case "assistant":
            calls = [f"{each.get('name', '')} {each.get('arguments', '')}" for each in data.get("tool_calls") or ()]
            row |= {"text": data.get("content", ""), "calls": calls, "note": data.get("model", ""),
                    "cost": usage.get("cost")}  # fmt: skip
        case "call":
            row |= {"text": "", "note": data.get("name", "")}
        case "result":
            row |= {"text": data.get("content", ""), "note": data.get("name", ""), "seconds": data.get("duration_s"),
                    "source": data.get("source", ""), "target": _find_target(data.get("content"))}  # fmt: skip
        case "approval":
            row |= {"text": data.get("summary", ""), "note": f"{data.get('tool', '')}: {data.get('answer', '')}"}
        case "failed":
            row |= {"text": data.get("error", "")}
        case "titled":
            row |= {"text": data.get("title", "")}
        case _:
            row |= {"text": json.dumps(data, ensure_ascii=False)}  # secrets are removed before it is cut
    return row


def _find_target(content: object) -> str:
    """Return the target that the result of a call names."""
    try:
        envelope: Any = json.loads(content) if isinstance(content, str) and content.startswith("{") else {}
    except (ValueError, RecursionError):
        return ""
    return str(envelope.get("target") or envelope.get("place") or "")


def list_cron() -> dict[str, Any]:
    """Return the scheduled jobs, and the latest slots with their deliveries."""
    from hermes_exec_agent.scheduler.jobs import list_jobs
    from hermes_exec_agent.scheduler.slots import find_last_look, list_deliveries, list_slots

    with _open_cron() as store:
        jobs = list_jobs(store)
        names = {job.id: job.name for job in jobs}
        slots = list_slots(store, limit=_PIECES)
        return {
            "jobs": [
                {"id": job.id, "name": job.name, "state": job.state, "reason": job.reason, "author": job.author,
                 "schedule": job.spec.schedule, "zone": job.spec.zone, "what": job.spec.command or job.spec.prompt,
                 "target": job.spec.target or "", "next": job.next if job.state == "active" else None}
                for job in jobs
            ],
            "slots": [
                {**asdict(slot), "name": names.get(slot.job, ""), "deliveries": list_deliveries(store, slot.id)}
                for slot in slots
            ],
            "looked": find_last_look(store),
        }  # fmt: skip


def _open_cron() -> Any:
    from hermes_exec_agent.scheduler.storage import CronStore

    return CronStore.of_user()


def list_outbox(state: str) -> dict[str, Any]:
    """Return the state of the gateway, its platforms, and the newest messages to persons."""
    from hermes_exec_agent.frontends.gateway.core import is_gateway_running
    from hermes_exec_agent.frontends.gateway.database import gateway_file
    from hermes_exec_agent.frontends.gateway.store import Store

    path = gateway_file(os.environ)
    if not path.exists():
        return {"running": False, "platforms": [], "counts": {}, "items": []}
    with Store(path) as store:
        running, platforms = is_gateway_running(path), store.platforms()
        if not running:
            platforms = [{**each, "state": "stopped"} for each in platforms]
        return {
            "running": running, "platforms": platforms, "counts": store.count_states(),
            "items": store.outbox(state, _PIECES),
        }  # fmt: skip


def list_audit(log: EventLog, *, failed: bool) -> dict[str, Any]:
    """Return the latest recorded commands, the newest first, and the latest reports on tasks."""
    found: deque[AuditRecord] = deque(maxlen=_COMMANDS)
    found.extend(read_audit(audit_file(os.environ), failed=failed))
    reports = list(read_audits(log).values())[-_REPORTS:]
    return {
        "items": [asdict(each) for each in sorted(found, key=lambda each: each.at, reverse=True)],
        "reports": [{"number": each["number"], "at": each["at"], "text": format_markdown(each)} for each in reports],
    }


def list_costs(log: EventLog) -> dict[str, Any]:
    """Return the known cost of each of the last days, of everything, and of each kind of task."""
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    starts = [midnight - timedelta(days=back) for back in range(_DAYS)]
    sums = [log.cost_since(each.timestamp()) for each in starts]
    days = [
        {"day": f"{start:%Y-%m-%d}", "cost": max(total - (sums[at - 1] if at else 0.0), 0.0)}
        for at, (start, total) in enumerate(zip(starts, sums, strict=True))
    ]
    report: dict[str, Any] = {"all": {}, "kinds": []}
    if log_exists(log.path):
        with OutcomeTables(log.path) as tables:
            if tables.tasks:
                report = create_report(tables, 1, tables.tasks, [])
    return {
        "days": days, "total": log.cost_since(0.0), "limit": load_settings().agent.most_cost_day,
        "tasks": report["all"], "kinds": report["kinds"], "at": time.time(),
    }  # fmt: skip
