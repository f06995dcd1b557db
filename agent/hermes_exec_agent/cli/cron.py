"""``cron``: jobs that run at their time: requests to the agent, and plain commands."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.arguments import parse_duration
from hermes_exec.cli.confirm import confirm
from hermes_exec.cli.console import escape_controls, note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json, show_table, to_iso
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agents_descendant, require_terminal
from hermes_exec_agent.cli.cron_run import daemon, run, tick
from hermes_exec_agent.cli.options import CronJob, Model, complete_cron_jobs, complete_skills

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job, JobSpec
    from hermes_exec_agent.scheduler.slot import Slot
    from hermes_exec_agent.scheduler.storage import CronStore

_SHOWN = 48
_STALE_S = 600.0

AnyName = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="The name of a job; all jobs by default.", autocompletion=complete_cron_jobs),
]
NewName = Annotated[str, typer.Option("--name", metavar="NAME", help="Name the job; by default after what it does.")]
Command = Annotated[str | None, typer.Option("--command", metavar="TEXT", help="Run this shell text, without a model.")]
Folder = Annotated[str | None, typer.Option("--cwd", "-C", metavar="DIR", help="Start in this folder of the target.")]
Skill = Annotated[
    str | None,
    typer.Option("--skill", metavar="NAME", help="Let the agent follow this skill.", autocompletion=complete_skills),
]
Approve = Annotated[
    str | None,
    typer.Option(metavar="allow|deny", help="Allow or deny the agent's tools that change something; by default deny."),
]
Budget = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1000, help="Limit the replies of the model in a run.")
]
Deliver = Annotated[
    list[str] | None,
    typer.Option(
        "--deliver",
        metavar="ADDRESS",
        help="Report the end of each slot to file:PATH, mail:ADDRESS or message:PERSON; may be repeated.",
    ),
]
TimeLimit = Annotated[str | None, typer.Option(metavar="TIME", help="End a run after this time; by default 1h.")]
MostCost = Annotated[float | None, typer.Option(metavar="USD", help="Limit what the models of a run may cost.")]
IfMissed = Annotated[
    str | None,
    typer.Option(metavar="run|skip|ask", help="After missed slots run once, only report them, or ask; by default run."),
]
Overlap = Annotated[
    str | None,
    typer.Option(
        metavar="skip|queue|kill", help="While a run lasts skip the next slot, queue it, or end that run; default skip."
    ),
]
Late = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Count a slot as missed so late; by default half the period, 2m to 15m."),
]
Zone = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="The time zone of the schedule; by default this machine's.")
]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/cron.md.")
    commands = (
        add_job, list_jobs, show, run, approve, pause, resume, edit, remove, history, next_slots, tick, daemon,
    )  # fmt: skip
    for command in commands:
        group.command(command.__name__.partition("_")[0])(command)
    app.add_typer(group, name=name, short_help=summary)


def _store() -> "CronStore":
    from hermes_exec_agent.scheduler.storage import CronStore

    return CronStore.of_user()


def add_job(  # noqa: PLR0913  one parameter an option
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="'30 8 * * mon-fri', 'every 15m' or 'at 2026-12-01T08:00'.")
    ],
    request: Annotated[str | None, typer.Argument(metavar="[REQUEST]", help="The request to the agent.")] = None,
    *,
    command: Command = None,
    name: NewName = "",
    on: On = None,
    cwd: Folder = None,
    model: Model = None,
    skill: Skill = None,
    approve: Approve = None,
    budget: Budget = None,
    deliver: Deliver = None,
    time_limit: TimeLimit = None,
    most_cost: MostCost = None,
    if_missed: IfMissed = None,
    overlap: Overlap = None,
    late: Late = None,
    tz: Zone = None,
    json: Json = False,
) -> int:
    """Add a job: a request to the agent, or with --command shell text.

    Five fields have the meaning of Debian's cron, in the job's time zone. A run of the agent is a new conversation that
    no person watches. A command runs in the home folder of this machine, or in a target.
    """
    refuse_agents_descendant()
    from hermes_exec_agent.scheduler.jobs import add_job as add_to_store

    given = _collect(
        prompt=request, command=command, target=on, cwd=cwd, model=model, skill=skill, approve=approve, budget=budget,
        deliver=deliver, time_limit=time_limit, most_cost=most_cost, if_missed=if_missed, overlap=overlap, late=late,
        zone=tz,
    )  # fmt: skip
    spec = _build({"schedule": schedule, "zone": _local_zone(), **given})
    with _store() as store:
        job = add_to_store(store, spec, time.time(), name=name)
        if json:
            show_json(_job_facts(job))
            return 0
        note(f"{job.name}: next at {_show_time(job, job.next)}")
        _hint_at_tickers(store)
    return 0


def _local_zone() -> str:
    from hermes_exec_agent.scheduler.schedule import find_local_zone

    return find_local_zone()


def _collect(**given: Any) -> dict[str, Any]:
    """Return the fields of the options that were given."""
    from hermes_exec_agent.scheduler.delivery import check_addresses
    from hermes_exec_agent.scheduler.job import APPROVE, IF_MISSED, OVERLAP
    from hermes_exec_agent.scheduler.schedule import LONGEST_S, normalize_schedule

    fields = {name: value for name, value in given.items() if value is not None}
    for option, choices in (("approve", APPROVE), ("if_missed", IF_MISSED), ("overlap", OVERLAP)):
        if option in fields and fields[option] not in choices:
            shown = option.replace("_", "-")
            raise UsageError(f"--{shown} {escape_controls(fields[option])}: no such choice", remedy=", ".join(choices))
    for option, field in (("time_limit", "time_limit_s"), ("late", "late_s")):
        if option in fields:
            fields[field] = parse_duration(fields.pop(option))
            if not 0 < fields[field] <= LONGEST_S:
                raise UsageError(f"--{option.replace('_', '-')}: it is more than 0, up to 3650d", remedy="10m")
    if "most_cost" in fields and not fields["most_cost"] > 0:
        raise UsageError("--most-cost: it is more than 0", remedy="--most-cost 0.5")
    if "deliver" in fields:
        fields["deliver"] = check_addresses(fields["deliver"])
    if fields.get("zone") == "":
        fields["zone"] = _local_zone()
    if "schedule" in fields:
        fields["schedule"] = normalize_schedule(fields["schedule"])
    return fields


def _build(fields: dict[str, Any]) -> "JobSpec":
    """Return what a job does, after a check of its target, model and skill; an empty text stands for the default.

    Raises:
        UsageError: one of them does not exist.
    """
    from pydantic import ValidationError

    from hermes_exec_agent.scheduler.job import JobSpec, check_spec
    from hermes_exec_agent.scheduler.runner import plan_job

    try:
        spec = JobSpec.model_validate({name: value for name, value in fields.items() if value != ""})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    check_spec(spec, time.time())
    plan_job(spec)
    if spec.model is not None:
        _check_model(spec.model)
    if spec.skill:
        _check_skill(spec.skill)
    return spec


def _check_model(name: str) -> None:
    import asyncio

    from hermes_exec_agent.models import load_models

    models = load_models()
    try:
        models.get(name)
    finally:
        asyncio.run(models.close())


def _check_skill(name: str) -> None:
    from hermes_exec.config.check import nearest_name
    from hermes_exec.extras import require
    from hermes_exec_agent.skills.registry.home import default_home

    require("skills", "--skill")
    from hermes_exec_agent.skills.registry.registry import Registry

    known = list(Registry().skills()) if default_home().log.exists() else []
    if name not in known:
        nearest = nearest_name(name, known) if known else ""
        raise UsageError(f"there is no skill {escape_controls(name)!r}", remedy=nearest or "hermes-exec skill list")


def _hint_at_tickers(store: "CronStore") -> None:
    from hermes_exec_agent.scheduler.slots import find_last_look

    last = find_last_look(store)
    if last is None or time.time() - last > _STALE_S:
        note("no ticker looks for due jobs now: start hermes-exec cron daemon, or a timer as in docs/cron.md")


def list_jobs(*, json: Json = False) -> int:
    """List the jobs, with the next slot and the end of the latest one."""
    from hermes_exec_agent.scheduler.jobs import list_jobs as list_all
    from hermes_exec_agent.scheduler.slots import list_slots

    with _store() as store:
        jobs = list_all(store)
        latest = {job.id: next(iter(list_slots(store, job.id, limit=1)), None) for job in jobs}
    if json:
        show_json([{**_job_facts(job), "latest": _slot_facts(job, latest[job.id])} for job in jobs])
    elif jobs:
        rows = [
            [job.name, job.state, job.spec.schedule, _show_time(job, job.next if job.state == "active" else None),
             slot.state if (slot := latest[job.id]) else "-", _cut(job.spec.command or job.spec.prompt)]
            for job in jobs
        ]  # fmt: skip
        show_table(("NAME", "STATE", "SCHEDULE", "NEXT", "LATEST", "WHAT"), rows)
    else:
        note("there is no job. Try: hermes-exec cron add")
    return 0


def _cut(text: str) -> str:
    from hermes_exec_agent.quoting import flatten

    return flatten(text, _SHOWN)


def _show_time(job: "Job", moment: float | None) -> str:
    from hermes_exec_agent.scheduler.schedule import format_moment

    return "-" if moment is None else format_moment(moment, job.spec.zone)


def _job_facts(job: "Job") -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "author": job.author,
        **job.spec.model_dump(mode="json"),
        "late_s": job.late_s,
        "next": None if job.next is None or job.state != "active" else _show_time(job, job.next),
        "failures": job.failures,
    }


def _slot_facts(job: "Job", slot: "Slot | None") -> dict[str, Any] | None:
    if slot is None:
        return None
    return {
        "id": slot.id,
        "job": job.name,
        "slot": _show_time(job, slot.slot),
        "last": _show_time(job, slot.last),
        "count": slot.count,
        "cause": slot.cause,
        "state": slot.state,
        "reason": slot.reason,
        "note": slot.note,
        "began": None if slot.began is None else to_iso(slot.began),
        "ended": None if slot.ended is None else to_iso(slot.ended),
        "exit_code": slot.exit_code,
        "conversation": slot.conversation,
        "cost": slot.cost,
    }


def show(job: CronJob, *, json: Json = False) -> int:
    """Show a job: what it does, its next slots, and the text and the deliveries of its latest run."""
    from hermes_exec_agent.scheduler.jobs import find_job
    from hermes_exec_agent.scheduler.slots import list_deliveries, list_slots

    with _store() as store:
        found = find_job(store, job)
        latest = next((slot for slot in list_slots(store, found.id) if slot.began is not None), None)
        sent = list_deliveries(store, latest.id) if latest else []
    if json:
        slot = {**(_slot_facts(found, latest) or {}), "text": latest.text, "deliveries": sent} if latest else None
        show_json({**_job_facts(found), "latest": slot})
        return 0
    _print_job(found)
    if latest is not None:
        print(_clean(f"latest run: {_show_time(found, latest.slot)} {latest.state} {latest.reason}".rstrip()))
        for each in sent:
            print(_clean(f"delivery: {each['address']} {each['state']} {each['error']}".rstrip()))
        for line in (latest.text or "").splitlines():
            print(f"  {_clean(line)}")
    return 0


def _print_job(job: "Job") -> None:
    """Print what a job does; each text is one line, which moves no cursor."""
    from hermes_exec_agent.scheduler.job import describe_job

    print(_clean(f"job: {job.name} (number {job.id}), {job.state}" + (f": {job.reason}" if job.reason else "")))
    print(f"next: {', '.join(_show_time(job, slot) for slot in _next_slots(job, 3)) or '-'}")
    for name, value in describe_job(job):
        print(_clean(f"{name}: {value}"))


def _clean(text: str) -> str:
    return flags.clean(escape_controls(text))


def _next_slots(job: "Job", count: int) -> list[int]:
    import itertools

    if job.state not in ("active", "waiting"):
        return []
    return list(itertools.islice(job.schedule.slots(max(time.time(), job.cursor)), count))


def approve(job: CronJob) -> int:
    """Approve a job that the agent proposed, at a terminal: it is shown first, and runs from then on."""
    from hermes_exec_agent.scheduler.jobs import approve_job, find_job

    refuse_agents_descendant()
    with _store() as store:
        found = find_job(store, job)
        if found.state != "waiting":
            raise UsageError(f"the job {found.name!r} waits for no approval", remedy="hermes-exec cron list")
        _print_job(found)
        require_terminal("approve")
        if not confirm(f"Run {found.name} at these times?"):
            note(f"nothing was changed; hermes-exec cron remove {found.name} removes it")
            return 1
        approved = approve_job(store, found, time.time())
        note(f"{approved.name}: next at {_show_time(approved, approved.next)}")
        _hint_at_tickers(store)
    return 0


def pause(job: CronJob) -> int:
    """Pause a job. A run goes on; the slots of the pause are recorded as skipped when it ends."""
    from hermes_exec_agent.scheduler.jobs import find_job, pause_job

    refuse_agents_descendant()
    with _store() as store:
        paused = pause_job(store, find_job(store, job), time.time())
    note(f"{paused.name}: paused")
    return 0


def resume(job: CronJob) -> int:
    """Resume a job that is paused, also one that was paused after failures."""
    from hermes_exec_agent.scheduler.jobs import find_job, resume_job

    refuse_agents_descendant()
    with _store() as store:
        resumed = resume_job(store, find_job(store, job), time.time())
    note(f"{resumed.name}: next at {_show_time(resumed, resumed.next)}")
    return 0


def edit(  # noqa: PLR0913  one parameter an option
    job: CronJob,
    *,
    schedule: Annotated[str | None, typer.Option(metavar="SCHEDULE", help="Change the schedule.")] = None,
    request: Annotated[str | None, typer.Option(metavar="TEXT", help="Change the request to the agent.")] = None,
    command: Command = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Rename the job.")] = "",
    on: On = None,
    cwd: Folder = None,
    model: Model = None,
    skill: Skill = None,
    approve: Approve = None,
    budget: Budget = None,
    deliver: Deliver = None,
    time_limit: TimeLimit = None,
    most_cost: MostCost = None,
    if_missed: IfMissed = None,
    overlap: Overlap = None,
    late: Late = None,
    tz: Zone = None,
) -> int:
    """Change a job; what is not given stays, and an empty text clears an option, as in --model ''.

    With another schedule, its slots count from now on.
    """
    from hermes_exec_agent.scheduler.jobs import edit_job, find_job

    refuse_agents_descendant()
    given = _collect(
        schedule=schedule, prompt=request, command=command, target=on, cwd=cwd, model=model, skill=skill,
        approve=approve, budget=budget, deliver=deliver, time_limit=time_limit, most_cost=most_cost,
        if_missed=if_missed, overlap=overlap, late=late, zone=tz,
    )  # fmt: skip
    if not given and not name:
        raise UsageError("edit needs a change", remedy="an option, such as --schedule 'every 1h'")
    with _store() as store:
        found = find_job(store, job)
        fields = found.spec.model_dump(exclude_defaults=True)
        if given.get("prompt"):
            fields.pop("command", None)
        elif given.get("command"):
            fields.pop("prompt", None)
        fields |= given
        spec = _build(fields)
        edited = edit_job(store, found, spec, time.time(), name=name)
    note(f"{edited.name}: next at {_show_time(edited, edited.next if edited.state == 'active' else None)}")
    return 0


def remove(job: CronJob) -> int:
    """Remove a job. Its run is ended; its history stays."""
    from hermes_exec_agent.scheduler.jobs import find_job, remove_job

    refuse_agents_descendant()
    with _store() as store:
        found = find_job(store, job)
        remove_job(store, found, time.time())
    note(f"{found.name}: removed")
    return 0


def history(
    job: AnyName = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show the latest N rows.")] = 30,
    json: Json = False,
) -> int:
    """Show what became of each slot, the latest first, also of jobs that were removed."""
    from hermes_exec_agent.scheduler.jobs import find_job
    from hermes_exec_agent.scheduler.jobs import list_jobs as list_all
    from hermes_exec_agent.scheduler.slots import list_deliveries, list_slots

    with _store() as store:
        jobs = {each.id: each for each in list_all(store, with_removed=True)}
        slots = list_slots(store, find_job(store, job).id if job is not None else None, limit=limit)
        sent = {slot.id: list_deliveries(store, slot.id) for slot in slots}
    if json:
        facts = [(slot, _slot_facts(jobs[slot.job], slot) or {}) for slot in slots]
        show_json([{**each, "text": slot.text, "deliveries": sent[slot.id]} for slot, each in facts])
    elif slots:
        rows = [_history_row(jobs[slot.job], slot, sent[slot.id]) for slot in slots]
        show_table(("SLOT", "JOB", "CAUSE", "STATE", "TOOK", "DELIVERY", "REASON"), rows)
    else:
        note("no slot was due yet")
    return 0


def _history_row(job: "Job", slot: "Slot", sent: list[dict[str, Any]]) -> list[str]:
    took = f"{slot.ended - slot.began:.0f} s" if slot.began is not None and slot.ended is not None else "-"
    when = _show_time(job, slot.slot) + (f" and {slot.count - 1} more" if slot.count > 1 else "")
    states = ", ".join(dict.fromkeys(each["state"] for each in sent)) or "-"
    return [
        when,
        job.name,
        slot.cause,
        slot.state,
        took,
        states,
        _cut("; ".join(filter(None, (slot.reason, slot.note)))),
    ]


def next_slots(
    job: AnyName = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, max=1000, help="Show N slots.")] = 5,
    json: Json = False,
) -> int:
    """Show the next slots of a job, or of all jobs in their order."""
    from hermes_exec_agent.scheduler.jobs import find_job
    from hermes_exec_agent.scheduler.jobs import list_jobs as list_all

    with _store() as store:
        jobs = [find_job(store, job)] if job is not None else list_all(store)
    slots = [(slot, each) for each in jobs for slot in _next_slots(each, count)]
    found = sorted(slots, key=lambda pair: (pair[0], pair[1].name))
    rows = [[_show_time(each, slot), each.name] for slot, each in found[:count]]
    if json:
        show_json([{"slot": when, "job": name} for when, name in rows])
    elif rows:
        show_table(("SLOT", "JOB"), rows)
    else:
        note("no slot is due from now on")
    return 0
