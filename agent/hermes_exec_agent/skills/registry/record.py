"""The record of a version, and the state of a skill after its events."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Refused
from hermes_exec_policies.gate.tree import FileEntry
from hermes_exec_policies.gate.verdict import Level, Right

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_agent.skills.registry.log import SkillEvent

PROTECTED, UNPROTECTED = "protected", "unprotected"
"""Whether the author could have reached the registry without the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The author of a skill."""

    kind: str
    """``person`` or ``agent``."""
    name: str = ""
    model: str = ""
    """Of an agent: its model."""
    shells: tuple[str, ...] | None = None
    """Of an agent: the targets in which it runs commands; None if they are unknown."""

    @property
    def is_confined(self) -> bool:
        """Whether this author can reach the registry's files only through the gate, as far as is known."""
        if self.kind == "person":
            return True
        return self.shells is not None and all(_is_isolated(target) for target in self.shells)


_APART = frozenset({"bubblewrap", "bwrap", "docker", "modal", "daytona"})
"""Kinds of targets that do not see this machine's files by default; not Apptainer, Slurm, or a host that may be this
one."""


def _is_isolated(target: str) -> bool:
    return target.partition("+")[0].partition(":")[0] in _APART


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """The task that a version was learned from, and the evidence for its outcome."""

    cause: str
    """``experience``: the task succeeded; ``refinement``: an earlier version was read before a step that failed."""
    conversation: str
    request: int
    """The number of the task's request in the conversation."""
    task: int
    """The number of the task among all tasks."""
    events: tuple[int, ...]
    """The numbers of the events that show what the version says."""
    result: str
    """Of the task, such as ``succeeded``."""
    evidence: str
    """The kind and the detail of the evidence; empty without any."""
    reason: str = ""
    review: str = ""
    """The conversation of the review that wrote the version."""
    call: str = ""
    """The digest of the call's arguments, by which a call that a kill cut off is found again."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Experience:
        """Return the experience with these fields, in which every tuple has become a list."""
        values: dict[str, Any] = {**facts, "events": tuple(facts["events"])}
        return cls(**values)

    def describe(self) -> str:
        """Return the task in one line."""
        return f"task {self.task}: {self.conversation}:{self.request}, {self.result}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a version's text, which decides how far the model follows it."""

    kind: str
    """``person``, ``agent`` (from the person's words), ``untrusted`` (an agent, from untrusted material) or
    ``imported``."""
    source: str = ""
    """Of an import: the folder, archive or repository, without credentials."""
    revision: str = ""
    """Of a repository: the commit."""
    digest: str = ""
    """Of an import: the SHA-256 of the archive, or of the imported tree."""
    experience: Experience | None = None
    """Of an agent's version that a review wrote: the task that it was learned from."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Origin:
        """Return the origin with these fields; records of earlier formats lack some."""
        values: dict[str, Any] = dict(facts)
        if values.get("experience") is not None:
            values["experience"] = Experience.from_facts(values["experience"])
        return cls(**values)

    @property
    def is_material(self) -> bool:
        """Whether the model gets the text as material to judge, until a person trusts the skill."""
        return self.kind in {"untrusted", "imported"}

    def describe(self) -> str:
        """Return the origin in one line."""
        if self.kind != "imported":
            return {"agent": "agent", "untrusted": "agent, from untrusted material"}.get(self.kind, self.kind)
        return f"imported from {self.source}" + (f" at {self.revision[:12]}" if self.revision else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptGrants:
    """A person's grants to the scripts of one version, beyond a sandbox with its packages."""

    unsandboxed: bool = False
    """Whether its scripts may run in the conversation's target, where each run asks like any command."""
    interpreters: tuple[str, ...] = ()
    """Interpreters other than Python and POSIX shells, such as ``node``."""
    hosts: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """``NAME=DIR``, with ``:rw`` if a script may write to the folder."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> ScriptGrants:
        """Return the grants with these fields, in which every tuple has become a list."""
        lists = {name: tuple(facts.get(name, ())) for name in ("interpreters", "hosts", "folders")}
        return cls(unsandboxed=bool(facts.get("unsandboxed")), **lists)

    def add(self, other: ScriptGrants) -> ScriptGrants:
        """Return these grants and the other ones; another folder of the same name replaces the earlier one."""
        names = {each.partition("=")[0] for each in other.folders}
        kept = tuple(each for each in self.folders if each.partition("=")[0] not in names)
        return ScriptGrants(
            unsandboxed=self.unsandboxed or other.unsandboxed,
            interpreters=tuple(dict.fromkeys((*self.interpreters, *other.interpreters))),
            hosts=tuple(dict.fromkeys((*self.hosts, *other.hosts))),
            folders=(*kept, *other.folders),
        )

    def remove(self, other: ScriptGrants) -> ScriptGrants:
        """Return these grants without the other ones; folders are compared by name."""
        names = {each.partition("=")[0] for each in other.folders}
        return ScriptGrants(
            unsandboxed=self.unsandboxed and not other.unsandboxed,
            interpreters=tuple(each for each in self.interpreters if each not in other.interpreters),
            hosts=tuple(each for each in self.hosts if each not in other.hosts),
            folders=tuple(each for each in self.folders if each.partition("=")[0] not in names),
        )

    def describe(self) -> str:
        """Return the grants in one line."""
        parts = ["no sandbox"] if self.unsandboxed else []
        return ", ".join([*parts, *self.interpreters, *self.hosts, *self.folders]) or "no grants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a skill: its content, and the evidence for it."""

    name: str
    number: int
    digest: str
    """Of its files."""
    files: tuple[FileEntry, ...]
    module: str
    summary: str
    entry: str
    function: str
    schema: Mapping[str, Any]
    """JSON Schema of its arguments."""
    grants: Mapping[str, Any]
    author: Author
    parents: tuple[str, ...]
    """Digests of the versions that it is based on."""
    level: str
    """The strength of the evidence."""
    evidence: Mapping[str, Any]
    """The gate's complete report."""
    policy: Mapping[str, Any]
    """The complete policy that it was proven with."""
    policy_digest: str
    specification: str
    """The digest of the launch specification."""
    interpreter: str
    environment: str
    """The digest of its packages; empty without any."""
    kernel: str
    protection: str
    registered: float
    """Seconds since 1970."""
    rights: tuple[str, ...] = tuple(map(str, Right))
    """The rights that it earned."""
    origin: Origin = Origin(kind="person")

    def facts(self) -> dict[str, Any]:
        """Return the fields for programs, and for the log."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Version:
        """Return the version with these fields."""
        author: dict[str, Any] = dict(facts["author"])
        shells = author.pop("shells")
        values: dict[str, Any] = dict(facts)
        values["files"] = tuple(FileEntry(**each) for each in facts["files"])
        values["author"] = Author(**author, shells=None if shells is None else tuple(shells))
        values["parents"] = tuple(facts["parents"])
        # Records of the first format have neither: their versions are functions that passed the gate.
        values["rights"] = tuple(facts.get("rights", map(str, Right)))
        values["origin"] = Origin.from_facts(facts.get("origin", {"kind": author["kind"]}))
        return cls(**values)

    @property
    def is_function(self) -> bool:
        """Whether it can be called by name with JSON."""
        return Right.CALL in self.rights

    @property
    def self_tested(self) -> bool:
        """Whether its evidence is only its own tests, and cases that its author had read."""
        return self.level not in {each for each in Level if each.unseen}

    @property
    def line(self) -> dict[str, Any]:
        """The fields for a list."""
        learned = self.origin.experience
        return {
            "digest": self.digest,
            "level": self.level,
            "protection": self.protection,
            "summary": self.summary[:80],
            "author": self.author.model or self.author.name or self.author.kind,
            "rights": list(self.rights),
            "origin": self.origin.describe(),
            "material": self.origin.is_material,
            **({"learned": asdict(learned)} if learned is not None else {}),
        }


@dataclass(slots=True)
class Skill:
    """The current state of a skill."""

    name: str
    versions: dict[int, SkillEvent] = field(default_factory=dict[int, "SkillEvent"])
    """The event that registered each version, or recorded its latest proof."""
    current: int = 0
    """The version that runs."""
    pinned: bool = False
    """Whether newer versions do not become the current one."""
    archived: bool = False
    kept_back: dict[int, str] = field(default_factory=dict[int, str])
    """Versions in quarantine, and why."""
    waiting: set[int] = field(default_factory=set[int])
    """Versions that were registered in quarantine, which only a person ends: a released one becomes the current one."""
    trusted: set[str] = field(default_factory=set[str])
    """Digests whose text the model may follow, by a person's decision."""
    script_grants: dict[str, ScriptGrants] = field(default_factory=dict[str, ScriptGrants])
    """A person's grants to scripts, by the version's digest."""
    history: list[SkillEvent] = field(default_factory=list["SkillEvent"])

    @property
    def state(self) -> str:
        """``archived``, ``quarantined``, ``pinned`` or ``ready``."""
        if self.archived:
            return "archived"
        if self.current in self.kept_back:
            return "quarantined"
        return "pinned" if self.pinned else "ready"

    def is_trusted(self, digest: str) -> bool:
        """Whether a person trusts the version with this digest."""
        return digest in self.trusted

    def facts(self) -> dict[str, Any]:
        """Return the fields for a list."""
        event = self.versions[self.current]
        first: dict[str, Any] = {"rights": [str(each) for each in Right], "origin": "", "material": False}
        return {"name": self.name, "version": self.current, "versions": len(self.versions), "state": self.state,
                **first, **event.facts, "trusted": self.is_trusted(str(event.facts["digest"])),
                "registered": event.at}  # fmt: skip


def build_skills(events: Iterable[SkillEvent]) -> dict[str, Skill]:
    """Return every skill by name, after all events.

    Raises:
        Refused: an event is invalid after its predecessors.
    """
    skills: dict[str, Skill] = {}
    for event in events:
        if event.kind == "created":
            continue
        try:
            if event.kind == "registered" and event.name not in skills:
                skills[event.name] = Skill(event.name)
            skill = skills[event.name]
            _apply(skill, event)
        except KeyError:
            raise Refused(f"event {event.seq} of the registry is of a skill or a kind that is not known") from None
        skill.history.append(event)
    return skills


def _apply(skill: Skill, event: SkillEvent) -> None:
    match event.kind:
        case "registered":
            skill.versions[event.version] = event
            if why := event.facts.get("waits"):
                skill.kept_back[event.version] = str(why)
                skill.waiting.add(event.version)
                skill.current = skill.current or event.version
            elif not skill.pinned:
                skill.current = event.version
                skill.archived = False
        case "proven":
            skill.versions[event.version] = event
            if event.version not in skill.waiting:
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
            if event.version in skill.waiting and not skill.pinned:
                skill.current = event.version
            skill.waiting.discard(event.version)
        case "trusted":
            skill.trusted.add(str(event.facts["digest"]))
        case "distrusted":
            skill.trusted.discard(str(event.facts["digest"]))
        case "granted":
            skill.script_grants[str(event.facts["digest"])] = ScriptGrants.from_facts(event.facts)
        case _:
            raise KeyError(event.kind)
