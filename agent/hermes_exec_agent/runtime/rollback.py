"""Roll files of the target back to their state before a turn.

The log is the authority: it has the path and the digest of each content, and the target's kept contents are compared
with it. A rollback is a step of the log like a turn, so that it can be rolled back, too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.quoting import quote_name
from hermes_exec_agent.tools import file_scripts
from hermes_exec_agent.tools.file_checkpoints import group_arguments, keep_files
from hermes_exec_agent.tools.file_states import FileChange, FileState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.runtime.events.event import Event, Kind

_LIMIT_S = 300.0
_NAMED = 10
"""Files that an error names."""
_COMMANDS = "changes of commands"


@dataclass(frozen=True, slots=True)
class _RecordedChange:
    """A change, and the numbers of the events at which it began and ended."""

    begin: int
    end: int
    change: FileChange


@dataclass(slots=True)
class RollbackStep:
    """A turn, or a rollback."""

    number: int
    """Counts from 1 in the conversation."""
    at: float
    title: str
    """The request, as the person wrote it."""
    is_rollback: bool = False
    changes: list[_RecordedChange] = field(default_factory=list[_RecordedChange])
    uncovered: dict[str, None] = field(default_factory=dict[str, None])
    """What a rollback does not restore, with the reason, in order."""
    open: dict[int, str] = field(default_factory=dict[int, str])
    """Folders with commands whose changes are not recorded yet, by the number of their first snapshot."""

    @property
    def paths(self) -> list[str]:
        """The files that the step changed."""
        return list(dict.fromkeys(each.change.path for each in self.changes))

    def list_uncovered(self) -> list[str]:
        """List what a rollback does not restore, with the reasons."""
        cut = [f"{_COMMANDS} in {quote_name(top)}: the turn did not reach its end" for top in self.open.values()]
        unkept = [
            f"{quote_name(each.change.path)}: {each.change.before.why}"
            for each in self.changes
            if each.change.before is not None and each.change.before.kind == "unkept"
        ]
        return [*self.uncovered, *cut, *unkept]


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """The effect of a rollback."""

    restored: tuple[str, ...]
    removed: tuple[str, ...]
    failed: tuple[str, ...]
    """Files that stay as they are, each with the reason."""
    uncovered: tuple[str, ...]

    def describe(self) -> list[str]:
        """Return the lines for the person."""
        lines = [f"restored: {quote_name(each)}" for each in self.restored]
        lines += [f"removed: {quote_name(each)}" for each in self.removed]
        lines += [f"not restored: {each}" for each in self.failed]
        lines += [f"not covered: {each}" for each in self.uncovered]
        return lines or ["all these files are already as they were before"]


@dataclass(frozen=True, slots=True)
class _Restoration:
    """A file, its wanted state, and the states that may be replaced."""

    path: str
    wanted: FileState
    replaceable: tuple[FileState, FileState]

    def to_arguments(self) -> list[str]:
        wanted, (one, two) = self.wanted, self.replaceable
        fields = [self.path, wanted.kind, wanted.digest, wanted.mode, wanted.owner, wanted.above]
        return [*fields, one.kind, one.digest, two.kind, two.digest]


def list_steps(events: Iterable[Event], target: str) -> list[RollbackStep]:
    """Return the turns and rollbacks of a conversation, with their changes of files of a target."""
    steps: list[RollbackStep] = []
    for event in events:
        data = event.data
        if event.kind == "user":
            steps.append(RollbackStep(len(steps) + 1, event.at, str(data["content"])))
        elif event.kind == "files":
            if data.get("what") == "rollback":
                title = f"(rollback to {data.get('upto')})"
                steps.append(RollbackStep(len(steps) + 1, event.at, title, is_rollback=True))
            if steps and data.get("target") == target:
                _add(steps[-1], event)
            elif steps:
                steps[-1].uncovered[f"changes in {data.get('target')}, which is another target"] = None
    return steps


def _add(step: RollbackStep, event: Event) -> None:
    data = event.data
    since = int(data.get("since") or event.number)
    match data.get("what"):
        case "snapshot":
            step.open[event.number] = str(data.get("top"))
        case "uncovered":
            step.open.pop(since, None)
            step.uncovered[f"{_COMMANDS} in {quote_name(str(data.get('folder')))}: {data.get('why')}"] = None
        case _:
            step.open.pop(since, None)
            for record in data.get("changes", ()):
                try:
                    step.changes.append(_RecordedChange(since, event.number, FileChange.parse(record)))
                except ValueError as error:
                    step.uncovered[f"a change whose record is invalid: {error}"] = None


def _plan(steps: Sequence[RollbackStep]) -> tuple[list[_Restoration], list[str]]:
    """Return what restores the files that steps changed, deletions first, and what cannot be restored."""
    by_path: dict[str, list[tuple[_RecordedChange, RollbackStep]]] = {}
    for step in steps:
        for each in step.changes:
            by_path.setdefault(each.change.path, []).append((each, step))
    plan: list[_Restoration] = []
    lost: list[str] = []
    for path, found in by_path.items():
        first = min((each for each, _ in found if each.change.before), key=lambda each: each.begin, default=None)
        last, step = max(found, key=lambda pair: pair[0].end)
        if first is None or first.change.before is None or first.change.before.kind == "unkept":
            why = first.change.before.why if first and first.change.before else "its earlier content is not recorded"
            lost.append(f"{quote_name(path)}: {why}")
            continue
        # A rollback that was killed has left each file in its state before or after.
        before = last.change.before if step.is_rollback and last.change.before else last.change.after
        plan.append(_Restoration(path, first.change.before, (last.change.after, before)))
    plan.sort(key=lambda each: (each.wanted.kind != "absent", each.path))
    return plan, lost


async def rollback(
    events: Sequence[Event],
    terminal: Terminal,
    number: int,
    record: Callable[[Kind, dict[str, Any]], Awaitable[object]],
    *,
    force: bool = False,
) -> RollbackReport:
    """Restore the files that step ``number`` and later ones changed, as they were before it.

    The states that are replaced are kept and recorded first, so that a rollback can be rolled back.

    Args:
        events: all events of the conversation, whose turn the caller holds.
        terminal: of the target.
        number: of the step.
        record: appends an event.
        force: replace also files that were changed since, or that cannot be kept.

    Raises:
        UsageError: there is no such step, or files would be lost without ``force``; nothing was changed.
        HermesError: the target failed; each file is as before or restored.
    """
    steps = list_steps(events, terminal.target)
    if not 1 <= number <= len(steps):
        raise UsageError(f"there is no turn {number}", remedy="the list that rollback shows without N")
    plan, lost = _plan(steps[number - 1 :])
    uncovered = [line for step in steps[number - 1 :] for line in step.list_uncovered()]
    uncovered = [line for line in dict.fromkeys(uncovered) if line not in lost]
    checked = list(zip(plan, await _run("check", plan, terminal, force=force), strict=True))
    changed = [quote_name(each.path) for each, outcome in checked if outcome == "changed"]
    if changed:
        raise UsageError(
            f"changed since the agent's last change: {_name(changed)}; nothing was restored",
            remedy=f"/rollback {number} --force, which replaces them",
        )
    failed = [f"{quote_name(each.path)}: its folder leads elsewhere" for each, what in checked if what == "failed"]
    todo = [each for each, outcome in checked if outcome == "free"]
    if todo:
        kept = await _keep(todo, terminal, number, force=force)
        changes = [
            FileChange(each.path, before, each.wanted).to_record() for each, before in zip(todo, kept, strict=True)
        ]
        await record("files", {"what": "rollback", "target": terminal.target, "upto": number, "changes": changes})
    restored: list[str] = []
    removed: list[str] = []
    for each, outcome in zip(todo, await _run("restore", todo, terminal, force=force), strict=True):
        if outcome in ("done", "same"):
            (removed if each.wanted.kind == "absent" else restored).append(each.path)
        else:
            failed.append(f"{quote_name(each.path)}: {_FAILURES.get(outcome, 'it cannot be replaced')}")
    return RollbackReport(tuple(restored), tuple(removed), (*failed, *lost), tuple(uncovered))


_FAILURES = {"changed": "it was changed at this moment", "damaged": "its kept content is missing or damaged"}


async def _keep(todo: Sequence[_Restoration], terminal: Terminal, number: int, *, force: bool) -> list[FileState]:
    """Keep the current states of files."""
    states: list[FileState] = []
    _, found = await keep_files(terminal, [each.path for each in todo], follow=False)
    for each, kept in zip(todo, found, strict=True):
        state = kept.before or FileState("unkept")
        states.append(state if kept.path == each.path else FileState("unkept", why="its folder leads elsewhere"))
    lost = [f"{quote_name(each.path)} ({state.why})" for each, state in zip(todo, states, strict=True) if state.why]
    if lost and not force:
        raise UsageError(
            f"cannot be kept, so that this could not be undone: {_name(lost)}; nothing was restored",
            remedy=f"/rollback {number} --force",
        )
    return states


async def _run(act: str, plan: Sequence[_Restoration], terminal: Terminal, *, force: bool) -> list[str]:
    """Return the outcome of each file."""
    outcomes: list[str] = []
    for group in group_arguments(each.to_arguments() for each in plan):
        words = [word for each in group for word in each]
        argv = ["sh", "-c", file_scripts.RESTORE, "sh", act, "1" if force else "0", *words]
        result = await terminal.run(argv, timeout=_LIMIT_S)
        found = [os.fsdecode(each) for each in result.stdout.split(b"\0")[:-1]]
        if len(found) != len(group):
            raise HermesError(f"the target ended the rollback: {result.reason}", remedy="the same again")
        outcomes += found
    return outcomes


def _name(files: Sequence[str]) -> str:
    more = f", and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(files[:_NAMED]) + more
