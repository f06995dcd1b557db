"""The curator: archive skills of the agent that are unused, and merge those that overlap. Nothing is deleted.

A run is planned from the registry and its counters, and each change is checked again while no other program can change
the skill. Before its first change, a run records its plan and writes a backup (`backups`). Each change is an event of
the registry's signed log with the id of the run, and then an event of the stream ``curator``, so that the next run
completes the record of one that was killed. One curator at a time works on a registry.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.file_lock import hold_alone
from hermes_exec_agent.learning.backups import BackupStore
from hermes_exec_agent.learning.curator_merge import merge
from hermes_exec_agent.learning.curator_plan import ARCHIVE_S, Plan, find_exemption, make_plan, measure_unused
from hermes_exec_agent.skills.registry.counts import RunCounter, Uses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable

    from hermes_exec_agent.learning.curator_plan import Overlap
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry

STREAM = "curator"
"""The curator's id in the event log. Its events have ``what`` and ``run``: see `Curator`."""


class CuratorBusy(HermesError):
    """Another curator works on the registry."""

    state = "this one changed nothing"


@dataclass(slots=True)
class RunResult:
    """The outcome of a run."""

    run: str
    plan: Plan
    applied: bool
    """Whether it was more than a report."""
    archived: list[str] = field(default_factory=list[str])
    merged: list[str] = field(default_factory=list[str])
    """One line for each merge."""
    advice: list[str] = field(default_factory=list[str])
    """Changes that were planned and not made, with the reasons."""


@dataclass(slots=True)
class Restoration:
    """The outcome of undoing a run."""

    run: str
    restored: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    """Skills that were changed since the run, and stay as they are."""


def _ignore(_: str) -> None:
    """Ignore the line."""


class Curator:
    """The curator of one registry.

    Its events are ``reported`` {plan}; ``started`` {plan, versions: the digests to merge}; ``archived`` {name, version,
    why}; ``merged`` {keep, before, version, drop, dropped, ancestors, why}; ``advised`` {names, why}; ``finished``
    {interrupted}; and ``restored`` {names, left}, in which ``run`` is the run that was undone.
    """

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        *,
        exempt: Collection[str] = (),
        tell: Callable[[str], None] = _ignore,
    ) -> None:
        """``exempt`` are names of skills that are not touched; ``tell`` is called with a line before each change."""
        self._registry = registry
        self._log = log
        self._exempt = frozenset(exempt)
        self._tell = tell
        self._counter = RunCounter(registry.home.counts)
        self.backups = BackupStore(registry)

    def plan(self) -> Plan:
        """Return the changes that a run would make now. Nothing is written.

        Raises:
            Refused: another program changed the registry.
        """
        return self._make_plan(self._counter.read_uses())

    async def run(self, *, apply: bool) -> RunResult:
        """Report the changes, or with ``apply`` make them.

        Raises:
            CuratorBusy: another curator works on the registry.
            Refused: another program changed the registry.
            HermesError: a backup or a change could not be written; the next run continues.
        """
        with self._lock():
            self._complete_last_run()
            plan = self._make_plan(self._counter.read_uses(begin=True))
            result = RunResult(_new_run(), plan, apply)
            if not apply:
                self._record("reported", result.run, plan=plan.facts())
                return result
            if plan.archive or plan.overlaps:
                await self._apply(result)
            self._record("finished", result.run, interrupted=False)
        return result

    def history(self) -> list[dict[str, Any]]:
        """Return the events, the oldest first, each with its time."""
        return [{"at": event.at, **event.data} for event in self._log.events(STREAM)]

    def restore(self, run: str = "") -> Restoration:
        """Undo a run, by default the latest one that changed something and was not undone.

        A skill that was changed since then stays as it is.

        Raises:
            UsageError: there is no such run.
            CuratorBusy: another curator works on the registry.
            HermesError: its backup is no longer kept, or cannot be read.
        """
        with self._lock():
            self._complete_last_run()
            events = self._log_data()
            undone = {each["run"] for each in events if each["what"] == "restored"}
            changes = [each for each in events if each["what"] in {"archived", "merged"}]
            runs = [each["run"] for each in changes if each["run"] not in undone]
            if not run and not runs:
                raise UsageError("there is no run to undo", remedy="hermes-exec curator status")
            run = run or runs[-1]
            chosen = [each for each in changes if each["run"] == run]
            if not chosen:
                raise UsageError(f"no run {run!r} changed anything", remedy="hermes-exec curator status")
            return self._undo(run, chosen)

    def _make_plan(self, uses: Uses) -> Plan:
        parted = {frozenset(pair) for each in self._log_data() for pair in each.get("parted", ())}
        return make_plan(self._registry, uses, now=time.time(), exempt=self._exempt, apart=parted)

    async def _apply(self, result: RunResult) -> None:
        plan, run, registry = result.plan, result.run, self._registry
        pairs = {each.keep: (registry.version(each.keep), registry.version(each.drop)) for each in plan.overlaps}
        digests = [[keep.name, keep.digest, drop.name, drop.digest] for keep, drop in pairs.values()]
        self._record("started", run, plan=plan.facts(), versions=digests)
        names = {each.name for each in plan.archive} | {
            name for each in plan.overlaps for name in (each.keep, each.drop)
        }
        sound = set(self._select_sound(names, result))
        if sound:
            self.backups.write(run, sound)
        for unused in plan.archive:
            if unused.name in sound:
                self._tell(f"archive {unused.name}: {unused.why}")
                self._archive_unused(unused.name, unused.why, result)
        for overlap in plan.overlaps:
            if {overlap.keep, overlap.drop} <= sound:
                self._tell(f"merge {overlap.drop} into {overlap.keep}: {overlap.why}")
                await self._merge(overlap, *pairs[overlap.keep], result)

    def _select_sound(self, names: Iterable[str], result: RunResult) -> Generator[str]:
        """Yield the skills whose files match the signed lists; the others are left alone."""
        for name in sorted(names):
            skill = self._registry.skill(name)
            try:
                for number in skill.versions:
                    self._registry.verify(self._registry.read_version(skill, number))
            except Refused as error:
                self._advise(result, [name], error.what)
            else:
                yield name

    def _archive_unused(self, name: str, why: str, result: RunResult) -> None:
        def is_unused(skill: Skill) -> bool:
            uses = self._counter.read_uses()
            return not find_exemption(skill, self._exempt) and measure_unused(skill, uses, time.time()) >= ARCHIVE_S

        if self._archive(name, why, result.run, is_unused):
            result.archived.append(name)
        else:
            self._advise(result, [name], "it was used or changed during the run")

    def _archive(self, name: str, why: str, run: str, condition: Callable[[Skill], bool]) -> bool:
        archived = self._registry.mark("archived", name, facts={"why": why, "run": run}, condition=condition)
        if archived:
            self._record("archived", run, name=name, version=self._registry.skill(name).current, why=why)
        return archived

    async def _merge(self, overlap: Overlap, keep: Version, drop: Version, result: RunResult) -> None:
        try:
            version = await merge(self._registry, keep, drop)
        except HermesError as error:
            self._advise(result, [keep.name, drop.name], error.what)
            return
        self._finish_merge(keep, drop, version.number, overlap.why, result.run)
        result.merged.append(f"{drop.name} into {keep.name} {version.number}")

    def _finish_merge(self, keep: Version, drop: Version, number: int, why: str, run: str) -> None:
        """Archive the skill that was merged into another one, and record the merge."""

        def is_same(skill: Skill) -> bool:
            unchanged = str(skill.versions[skill.current].facts["digest"]) == drop.digest
            return unchanged and not find_exemption(skill, self._exempt)

        into = f"merged into {keep.name} {number}"
        self._registry.mark("archived", drop.name, facts={"why": into, "run": run}, condition=is_same)
        self._record(
            "merged", run, keep=keep.name, before=keep.number, version=number, drop=drop.name, dropped=drop.number,
            ancestors=[keep.digest, drop.digest], why=why,
        )  # fmt: skip

    def _advise(self, result: RunResult, names: list[str], why: str) -> None:
        result.advice.append(f"{' and '.join(names)}: {why}")
        self._record("advised", result.run, names=names, why=why)

    def _complete_last_run(self) -> None:
        """Complete the record of a run that was killed: its changes are in the registry's signed log."""
        events = self._log_data()
        finished = {each["run"] for each in events if each["what"] == "finished"}
        for started in [each for each in events if each["what"] == "started" and each["run"] not in finished]:
            run = started["run"]
            recorded = {each.get("name") or each.get("drop") for each in events if each["run"] == run}
            for keep, keep_digest, drop, drop_digest in started["versions"]:
                if drop not in recorded:
                    self._complete_merge(keep, keep_digest, drop, drop_digest, run)
                    recorded.add(drop)
            for skill in self._registry.skills().values():
                for event in skill.history:
                    if event.kind == "archived" and event.facts.get("run") == run and skill.name not in recorded:
                        self._record("archived", run, name=skill.name, version=event.version, why=event.facts["why"])
            self._record("finished", run, interrupted=True)

    def _complete_merge(self, keep: str, keep_digest: str, drop: str, drop_digest: str, run: str) -> None:
        registry = self._registry
        skill, other = registry.skill(keep), registry.skill(drop)
        for number, event in skill.versions.items():
            if len(event.facts.get("ancestors", ())) != 2:
                continue
            if registry.read_version(skill, number).parents == (keep_digest, drop_digest):
                before = _find_version(skill, keep_digest)
                dropped = _find_version(other, drop_digest)
                versions = registry.read_version(skill, before), registry.read_version(other, dropped)
                self._finish_merge(*versions, number, "its run was interrupted", run)
                return

    def _undo(self, run: str, changes: list[dict[str, Any]]) -> Restoration:
        backup = self.backups.find(run)
        if backup is None:
            raise HermesError(f"the backup of run {run} is no longer kept", remedy="hermes-exec skill restore NAME")
        done, parted = Restoration(run), list[list[str]]()
        for change in changes:
            name = change.get("name") or change["drop"]
            self._sort(done, name, restored=self._unarchive(name, run))
            if change["what"] == "merged":
                keep, before = change["keep"], change["before"]
                parted.append([keep, name])
                unpinned = not self._registry.skill(keep).pinned
                chosen = unpinned and self._registry.choose(keep, before, instead_of=change["version"])
                self._sort(done, keep, restored=chosen)
        for name in backup.names:
            self.backups.restore_bytes(backup, name)
        self.backups.restore_counts(backup)
        self._record("restored", run, names=done.restored, left=done.left, parted=parted)
        return done

    def _unarchive(self, name: str, run: str) -> bool:
        """Restore a skill from the archive if the run put it there, and nothing happened to it since then."""

        def is_as_left(skill: Skill) -> bool:
            last = skill.history[-1]
            return last.kind == "archived" and last.facts.get("run") == run

        return self._registry.mark("restored", name, condition=is_as_left)

    def _sort(self, done: Restoration, name: str, *, restored: bool) -> None:
        if restored:
            self._tell(f"restored {name}")
        (done.restored if restored else done.left).append(name)

    def _log_data(self) -> list[dict[str, Any]]:
        return [event.data for event in self._log.events(STREAM)]

    def _record(self, what: str, run: str, **fields: Any) -> None:
        self._log.append(STREAM, "curator", {"what": what, "run": run, **fields})

    @contextlib.contextmanager
    def _lock(self) -> Generator[None]:
        """Exclude other curators."""
        self._registry.prepare()
        busy = CuratorBusy("another curator works on these skills", remedy="wait until it has ended")
        with hold_alone(self._registry.home.folder / "curator.lock", busy):
            yield


def _find_version(skill: Skill, digest: str) -> int:
    return next(number for number, event in skill.versions.items() if event.facts["digest"] == digest)


def _new_run() -> str:
    """Return an id for a run: its start time and a random part."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
