"""The outcomes of each version of a skill, by model; a version that does worse than the one before it falls back.

A fall-back is an event ``chosen`` in the signed log of skills, with the number of the version that fell and the reason.
It is recorded under the lock of the registry, once for each version, so a person's later choice of that version stays.
The stream `STREAM` of the event log has the same for the person, and the number of the event up to which they were
notified.

Counting all outcomes takes seconds in a log of a million events, so a table of the log's database has one row for each
task and skill, with the current outcome; each call adds the events that were recorded since the last one. The table is
filled again if the last event that was added is missing or is another one, as in a log whose last events were deleted.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.outcomes import CURRENT, forget_position
from hermes_exec_agent.runtime.events.log import Conflict
from hermes_exec_agent.runtime.events.storage import connect, log_exists, translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.skills.registry.record import Skill
    from hermes_exec_agent.skills.registry.registry import Registry

_log = logging.getLogger("hermes_exec.agent")

STREAM = "versions"
"""The id of the stream in the event log."""
EVIDENCE = 5
"""Tasks with evidence that both versions need with one model before they are compared."""
Row: TypeAlias = "tuple[str, int, str, float, float, float]"
"""A skill, its version, a model, and the numbers of tasks that succeeded, failed, and have no evidence."""
_BATCH = 20_000
"""Events of one transaction, which other programs that write wait for."""
_CREATE = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS version_outcomes (
    conversation TEXT NOT NULL, request INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    model TEXT NOT NULL, result TEXT NOT NULL, has_evidence INTEGER NOT NULL,
    PRIMARY KEY (conversation, request, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS version_outcomes_by_name ON version_outcomes (name, version, model, result);
CREATE TABLE IF NOT EXISTS version_outcomes_upto (number INTEGER NOT NULL, seq INTEGER, at REAL) STRICT;
INSERT INTO version_outcomes_upto SELECT 0, NULL, NULL WHERE NOT EXISTS (SELECT 1 FROM version_outcomes_upto);
COMMIT;
"""
_DROP = "BEGIN IMMEDIATE; DROP TABLE IF EXISTS version_outcomes; DROP TABLE IF EXISTS version_outcomes_upto; COMMIT;"
_END = "SELECT number FROM version_outcomes_upto"
_IS_GONE = """
SELECT 1 FROM version_outcomes_upto
WHERE seq IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events JOIN version_outcomes_upto USING (seq, at))
"""
_MOVE_END = """
UPDATE version_outcomes_upto SET number = ?1, (seq, at) = (
    SELECT seq, at FROM events
    WHERE conversation = 'outcomes' AND kind = 'outcome' AND number <= ?1 ORDER BY number DESC LIMIT 1
)
"""
_LAST = "SELECT coalesce(max(number), 0) FROM events WHERE conversation = 'outcomes' AND kind = 'outcome'"
_ADD = """
INSERT INTO version_outcomes SELECT
    json_extract(data, '$.conversation'), json_extract(data, '$.request'), json_extract(value, '$.name'),
    max(json_extract(value, '$.version')), json_extract(data, '$.model'), json_extract(data, '$.result'),
    json_extract(data, '$.evidence.kind') <> 'none'
FROM events, json_each(data, '$.skills')
WHERE conversation = 'outcomes' AND kind = 'outcome' AND number > ? AND number <= ?
GROUP BY number, json_extract(value, '$.name') ORDER BY number
ON CONFLICT DO UPDATE SET version = excluded.version, model = excluded.model, result = excluded.result,
    has_evidence = excluded.has_evidence WHERE excluded.has_evidence OR NOT version_outcomes.has_evidence
"""
_COUNTS = "name, version, model, total(result = 'succeeded'), total(result = 'failed'), total(result = 'unknown')"
_GROUPS = "GROUP BY name, version, model ORDER BY name, version, model"
_FROM_TABLE = f"SELECT {_COUNTS} FROM version_outcomes WHERE :name = '' OR name = :name {_GROUPS}"  # noqa: S608  constants
_FROM_EVENTS = f"""
SELECT {_COUNTS} FROM (
    SELECT json_extract(value, '$.name') AS name, max(json_extract(value, '$.version')) AS version,
        json_extract(data, '$.model') AS model, json_extract(data, '$.result') AS result
    FROM ({CURRENT}), json_each(data, '$.skills') WHERE :name = '' OR json_extract(value, '$.name') = :name
    GROUP BY json_extract(data, '$.task'), json_extract(value, '$.name')
) {_GROUPS}
"""  # noqa: S608  constants


@dataclass(frozen=True, slots=True)
class VersionCounts:
    """The tasks that used a version of a skill with one model; a task that used several counts for the newest."""

    name: str
    version: int
    model: str
    succeeded: int
    """By evidence from outside of the model, as is ``failed``."""
    failed: int
    unknown: int
    """Tasks without evidence."""

    @property
    def known(self) -> int:
        """The number of tasks with evidence."""
        return self.succeeded + self.failed

    def facts(self) -> dict[str, Any]:
        """Return the fields for programs."""
        return asdict(self)

    def describe(self) -> str:
        """Return the counts in one line."""
        more = f", {self.unknown} without evidence" if self.unknown else ""
        return f"{self.succeeded} of {self.known} succeeded{more}"


def read_versions(log: EventLog, name: str = "") -> list[VersionCounts]:
    """Return the counts of the versions of a skill, or of all skills, by name, version and model.

    Raises:
        HermesError: the log cannot be read.
    """
    return [
        VersionCounts(skill, version, model, int(succeeded), int(failed), int(unknown))
        for skill, version, model, succeeded, failed, unknown in count_outcomes(log, name)
    ]


def compare_versions(
    before: Iterable[VersionCounts], after: Iterable[VersionCounts]
) -> list[tuple[VersionCounts, VersionCounts]]:
    """Return the counts of both versions for each model with which both have `EVIDENCE` tasks with evidence."""
    known = {each.model: each for each in before if each.known >= EVIDENCE}
    return [(known[each.model], each) for each in after if each.known >= EVIDENCE and each.model in known]


def is_worse(pairs: Sequence[tuple[VersionCounts, VersionCounts]]) -> bool:
    """Return whether the success rate is lower by 2 of 5 or more, on average over the models of ``pairs``.

    Each model counts the same, and versions are compared with the same model alone, as a weaker model is no fault of
    a version.
    """
    if not pairs:
        return False
    drops = [before.succeeded / before.known - after.succeeded / after.known for before, after in pairs]
    return sum(drops) / len(drops) >= 2 / 5 - 1e-9


def fall_back(log: EventLog) -> int:
    """Let each current version that does worse than the one before it fall back; return how many did.

    A version falls once. A pinned or archived skill stays as it is, and so does one whose version before cannot run.

    Raises:
        HermesError: the log or the registry cannot be read or written; the next call does the rest.
    """
    from hermes_exec_agent.skills.registry.home import default_home

    counts = read_versions(log)
    names = [name for name in dict.fromkeys(each.name for each in counts) if _may_fall(counts, name)]
    if not names or not default_home().log.exists():
        return 0
    from hermes_exec_agent.skills.registry.registry import Registry

    registry = Registry()
    fallen = [name for name in names if _fall(registry, name, [each for each in counts if each.name == name])]
    _record_falls(log, registry, names)
    return len(fallen)


def notice_worse(log: EventLog) -> None:
    """Do the same as `fall_back` after new evidence; what fails is logged, and done with the next evidence."""
    try:
        fall_back(log)
    except HermesError as error:
        _log.warning("the versions of skills were not compared: %s", error)


def _may_fall(counts: Iterable[VersionCounts], name: str) -> bool:
    """Whether any two versions of a skill can be compared, which needs no registry."""
    models = [each.model for each in counts if each.name == name and each.known >= EVIDENCE]
    return len(set(models)) < len(models)


def _fall(registry: Registry, name: str, counts: Sequence[VersionCounts]) -> bool:
    skill = registry.skills().get(name)
    if skill is None or not _is_free(skill):
        return False
    number, before = skill.current, _find_before(registry, skill)
    pairs = compare_versions(
        [each for each in counts if each.version == before], [each for each in counts if each.version == number]
    )
    if before in skill.kept_back or not is_worse(pairs):
        return False
    return registry.choose(
        name,
        before,
        instead_of=number,
        facts={"fell": number, "why": _describe_fall(number, before, pairs)},
        condition=lambda found: _is_free(found) and before not in found.kept_back,
    )


def _is_free(skill: Skill) -> bool:
    """Whether the current version may fall: it did not before, and the skill is neither pinned nor archived."""
    fell = [event.facts["fell"] for event in skill.history if "fell" in event.facts]
    return not (skill.pinned or skill.archived or skill.current in fell)


def _find_before(registry: Registry, skill: Skill) -> int:
    """Return the version that the current one is based on; 0 if there is none."""
    parents = registry.read_version(skill).parents
    found = [
        number
        for number, event in skill.versions.items()
        if number < skill.current and event.facts["digest"] in parents[:1]
    ]
    return max(found, default=0)


def _describe_fall(number: int, before: int, pairs: Sequence[tuple[VersionCounts, VersionCounts]]) -> str:
    rates = [
        f"{after.succeeded} of {after.known} tasks succeeded with version {number}, "
        f"{earlier.succeeded} of {earlier.known} with version {before} ({after.model})"
        for earlier, after in pairs
    ]
    return "; ".join(rates)


def _record_falls(log: EventLog, registry: Registry, names: Iterable[str]) -> None:
    """Record the fall-backs of these skills that the event log lacks; also those of a program that was killed."""
    for name in names:
        skill = registry.skills().get(name)
        for event in skill.history if skill is not None else ():
            if "fell" in event.facts:
                record = {"what": "fell", "name": name, "version": event.facts["fell"], "to": event.version}
                _record_once(log, {**record, "why": str(event.facts["why"])})


def _record_once(log: EventLog, record: dict[str, Any]) -> None:
    while True:
        events = log.events(STREAM)
        if any(all(event.data.get(key) == record[key] for key in ("what", "name", "version")) for event in events):
            return
        try:
            log.append(STREAM, "version", record, after=len(events))
        except Conflict:
            continue
        return


def take_notices(log: EventLog) -> list[str]:
    """Return a line for each fall-back that the person was not notified of; each is returned once, to one program.

    Raises:
        HermesError: the log cannot be read or written.
    """
    while True:
        events = log.events(STREAM)
        seen = max((event.number for event in events if event.data["what"] == "notified"), default=0)
        new = [event.data for event in events if event.number > seen]
        if not new:
            return []
        try:
            log.append(STREAM, "version", {"what": "notified"}, after=len(events))
        except Conflict:
            continue
        return [
            f"skill {each['name']}: version {each['version']} did worse than version {each['to']}, which is current "
            f"again: {each['why']}. To undo: hermes-exec skill rollback {each['name']} {each['version']}"
            for each in new
        ]


def count_outcomes(log: EventLog, name: str = "") -> list[Row]:
    """Return the counts of the versions of a skill, or of all skills, by name, version and model.

    Raises:
        HermesError: the log cannot be read.
    """
    if not log_exists(log.path):
        return []
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        try:
            _catch_up(base)
            return base.execute(_FROM_TABLE, {"name": name}).fetchall()
        except (sqlite3.OperationalError, sqlite3.IntegrityError):  # no space, a read-only file, or a damaged record
            return count_from_events(base, name)


def count_from_events(base: sqlite3.Connection, name: str = "") -> list[Row]:
    """Return the same from the events alone."""
    return base.execute(_FROM_EVENTS, {"name": name}).fetchall()


def forget_table(log: EventLog) -> None:
    """Remove the table, and the position up to which tasks have outcomes; both are found again from the events.

    Raises:
        HermesError: the log cannot be written.
    """
    if log_exists(log.path):
        with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
            base.executescript(_DROP)
            forget_position(base)


def _catch_up(base: sqlite3.Connection) -> None:
    """Add the outcomes that the table lacks, some of them in each transaction, so that a kill loses little."""
    if base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'version_outcomes_upto'").fetchone() is None:
        base.executescript(_CREATE)
    elif base.execute(_IS_GONE).fetchone():
        base.executescript(_DROP)
        base.executescript(_CREATE)
    while base.execute(_END).fetchone() < base.execute(_LAST).fetchone():
        base.execute("BEGIN IMMEDIATE")
        try:
            ((end,), (last,)) = base.execute(_END).fetchone(), base.execute(_LAST).fetchone()
            upto = min(end + _BATCH, last)
            base.execute(_ADD, (end, upto))
            base.execute(_MOVE_END, (upto,))
            base.execute("COMMIT")
        except BaseException:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise
