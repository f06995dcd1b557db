"""What is recorded of a version, and what a skill is by all that happened to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Refused
from hermes_exec_policies.gate.tree import Listed
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_agent.skills.registry.log import Event

PROTECTED, UNPROTECTED = "protected", "unprotected"
"""Whether its writer could have reached the registry past the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who wrote a skill."""

    kind: str
    """``person`` or ``agent``."""
    name: str = ""
    model: str = ""
    """Of an agent: which model."""
    shells: tuple[str, ...] | None = None
    """Of an agent: the places in which it runs commands, as targets; None where nobody knows."""

    @property
    def confined(self) -> bool:
        """Whether this author can reach the registry's files only through the gate, as far as is known."""
        if self.kind == "person":
            return True
        return self.shells is not None and all(_apart(target) for target in self.shells)


_APART = frozenset({"bubblewrap", "bwrap", "docker", "modal", "daytona"})
"""Kinds of place that do not see this machine's files unless they are told to; not so Apptainer, Slurm or a host that
may be this one."""


def _apart(target: str) -> bool:
    return target.partition("+")[0].partition(":")[0] in _APART


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a skill: what it is, and what was shown of it."""

    name: str
    number: int
    digest: str
    """Of its files."""
    files: tuple[Listed, ...]
    module: str
    summary: str
    entry: str
    function: str
    schema: Mapping[str, Any]
    """JSON Schema of its arguments."""
    grants: Mapping[str, Any]
    author: Author
    parents: tuple[str, ...]
    """Digests of the versions that it was made from."""
    level: str
    """How strong the evidence is."""
    evidence: Mapping[str, Any]
    """The gate's whole report."""
    policy: Mapping[str, Any]
    """All that the policy says that it was proven with."""
    policy_digest: str
    specification: str
    """The launch specification's digest."""
    interpreter: str
    environment: str
    """The digest of its packages; empty without any."""
    kernel: str
    protection: str
    registered: float
    """Seconds since 1970."""

    def facts(self) -> dict[str, Any]:
        """For programs, and for the log."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Version:
        """The version that ``facts`` are of."""
        author: dict[str, Any] = dict(facts["author"])
        shells = author.pop("shells")
        values: dict[str, Any] = dict(facts)
        values["files"] = tuple(Listed(**each) for each in facts["files"])
        values["author"] = Author(**author, shells=None if shells is None else tuple(shells))
        values["parents"] = tuple(facts["parents"])
        return cls(**values)

    @property
    def self_tested(self) -> bool:
        """Whether its evidence is its own tests alone, and cases that its author had read."""
        return self.level not in {each for each in Level if each.unseen}

    @property
    def line(self) -> dict[str, Any]:
        """What a list shows of it."""
        return {
            "digest": self.digest,
            "level": self.level,
            "protection": self.protection,
            "summary": self.summary[:80],
            "author": self.author.model or self.author.name or self.author.kind,
        }


@dataclass(slots=True)
class Skill:
    """A skill as it is now."""

    name: str
    versions: dict[int, Event] = field(default_factory=dict[int, "Event"])
    """The event that registered each version, or proved it anew."""
    current: int = 0
    """The version that runs."""
    pinned: bool = False
    """Whether newer versions do not become the current one."""
    archived: bool = False
    kept_back: dict[int, str] = field(default_factory=dict[int, str])
    """Versions in quarantine, and why."""
    history: list[Event] = field(default_factory=list["Event"])

    @property
    def state(self) -> str:
        """``archived``, ``quarantined``, ``pinned`` or ``ready``."""
        if self.archived:
            return "archived"
        if self.current in self.kept_back:
            return "quarantined"
        return "pinned" if self.pinned else "ready"

    def facts(self) -> dict[str, Any]:
        """What a list shows."""
        event = self.versions[self.current]
        return {"name": self.name, "version": self.current, "versions": len(self.versions), "state": self.state,
                **event.facts, "registered": event.at}  # fmt: skip


def skills_of(events: Iterable[Event]) -> dict[str, Skill]:
    """Every skill, by name, after all events.

    Raises:
        Refused: an event makes no sense after those before it.
    """
    skills: dict[str, Skill] = {}
    for event in events:
        if event.kind == "created":
            continue
        try:
            if event.kind == "registered" and event.name not in skills:
                skills[event.name] = Skill(event.name, {}, 0, False, False, {}, [])
            skill = skills[event.name]
            _apply(skill, event)
        except KeyError:
            raise Refused(f"event {event.seq} of the registry is of a skill or a kind that is not known") from None
        skill.history.append(event)
    return skills


def _apply(skill: Skill, event: Event) -> None:
    match event.kind:
        case "registered":
            skill.versions[event.version] = event
            if not skill.pinned:
                skill.current = event.version
                skill.archived = False
        case "proven":
            skill.versions[event.version] = event
            skill.kept_back.pop(event.version, None)
        case "chosen":
            skill.current = event.version
        case "pinned" | "unpinned":
            skill.pinned = event.kind == "pinned"
        case "archived" | "restored":
            skill.archived = event.kind == "archived"
        case "quarantined":
            skill.kept_back[event.version] = str(event.facts["why"])
        case "released":
            skill.kept_back.pop(event.version, None)
        case _:
            raise KeyError(event.kind)
