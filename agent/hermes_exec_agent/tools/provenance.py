"""The sources of a conversation's text: the skills whose text it read, and whether it read any output of a tool.

Text of an imported skill, or of one that an agent made from untrusted material, may instruct. After a conversation read
it, each act needs a person's approval, until the person trusts the skill. Text of strangers, which is that of the web
and of other servers, brings the question back for acts that may leave the workspace. Output of commands and files are
untrusted as well, but a question after every read would make the mode ``allow`` useless: what such text causes is
contained by the target, and a guide that is written after it waits for a person. The record of each act names these
sources.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry

_INWARD = frozenset(
    {"todo", "clarify", "memory", "cronjob", "propose_change", "skills_list", "skill_view", "skill_manage"}
)
"""Tools whose results have no text from outside, except for text of skills, which has an origin of its own."""
_NO_SOURCE = frozenset({"todo", "clarify", "cronjob", "propose_change", "skill_manage"})
"""Tools whose results have no text but the model's and the person's."""
_OF_ALL_SERVERS = frozenset({"tool_search", "mcp_resources", "mcp_prompts"})
"""Tools whose results have text of several servers."""
_NAMED = 3
"""Skills that a question names."""
_FIRST = _LATEST = 8
"""Sources that the record of an act names; those between are left out."""
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class PartOrigin:
    """The skill that a part of a conversation comes from."""

    skill: str
    digest: str
    """Of the version."""
    source: str
    """The version's origin, in one line."""

    @classmethod
    def of_version(cls, version: Version) -> PartOrigin:
        """Return the origin of a part that has text of a version."""
        return cls(version.name, version.digest, flatten(version.origin.describe(), 200))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PartOrigin:
        """Return the origin in an event."""
        return cls(str(record["skill"]), str(record["digest"]), str(record["source"]))

    def to_record(self) -> dict[str, Any]:
        """Return the origin as an event contains it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReadSource:
    """A result that a conversation read before an act."""

    tool: str
    source: str
    """The path, address or command that the result came from, as the call named it."""
    event: int
    """The number of the result's event."""
    conversation: str
    """The conversation of that event."""

    def to_record(self, conversation: str = "") -> dict[str, Any]:
        """Return the source as an event of ``conversation`` contains it."""
        record = asdict(self)
        if self.conversation == conversation:
            del record["conversation"]
        return record


def describe_source(tool: str, arguments: Mapping[str, Any], clean: Callable[[str], str]) -> str:
    """Return the path, address or command of a call, or its arguments; empty if its result has no text to name.

    ``clean`` removes keys; it gets the whole text, as half of a key would not be found.
    """
    if tool in _NO_SOURCE:
        return ""
    named = (arguments.get(each) for each in ("path", "url", "command"))
    source = str(next(filter(None, named), "") or json.dumps(arguments, ensure_ascii=False))
    return flatten(clean(source), _LONGEST)


def find_stranger(tool: str) -> str:
    """Return the stranger that writes a tool's results, ``web`` or ``mcp:SERVER``; an empty string without one."""
    if tool.startswith("web_"):
        return "web"
    if tool.startswith("mcp__"):
        return f"mcp:{tool.split('__')[1]}"
    return "mcp" if tool in _OF_ALL_SERVERS else ""


def is_inward(tool: str) -> bool:
    """Whether results of a tool have no text from outside."""
    return tool in _INWARD


def list_origins(version: Version, skill: Skill) -> tuple[PartOrigin, ...]:
    """Return the origin of text of a version, or nothing if the model may follow it."""
    if not version.origin.is_material or skill.is_trusted(version.digest):
        return ()
    return (PartOrigin.of_version(version),)


class Provenance:
    """The sources of one conversation's text, as its log has them."""

    def __init__(self) -> None:
        self.parts: dict[str, PartOrigin] = {}
        """By digest."""
        self.has_output = False
        """Whether a tool returned text from outside, such as a file or the output of a command."""
        self.strangers: dict[str, None] = {}
        """The strangers whose text was read, in order: ``web``, and servers as ``mcp:NAME``."""
        self.sources: dict[tuple[str, str], ReadSource] = {}
        """The first and the latest results that were read, by tool and source."""
        self._registry: Registry | None = None

    def add(self, parts: Iterable[PartOrigin]) -> None:
        """Add the origins of a part."""
        self.parts |= {each.digest: each for each in parts}

    def add_source(self, source: ReadSource) -> None:
        """Add a result that was read; the ones between the first and the latest are dropped."""
        key = source.tool, source.source
        if key not in list(self.sources)[:_FIRST]:
            self.sources.pop(key, None)
        self.sources[key] = source
        if len(self.sources) > _FIRST + _LATEST:
            del self.sources[list(self.sources)[_FIRST]]

    def merge(self, other: Provenance) -> None:
        """Add the sources of another conversation, whose text this one reads."""
        self.add(other.parts.values())
        for each in other.sources.values():
            self.add_source(each)
        self.has_output = self.has_output or other.has_output
        self.add_strangers(other.strangers)

    def add_start(self, data: Mapping[str, Any]) -> None:
        """Add the sources that a conversation began with: those of the one that it branched off or works for."""
        self.add(map(PartOrigin.from_record, data.get("origins", ())))
        for each in data.get("sources", ()):
            self.add_source(ReadSource(**each))
        self.has_output = self.has_output or bool(data.get("has_output"))
        self.add_strangers(map(str, data.get("strangers", ())))

    def add_result(self, event: Event) -> None:
        """Add the sources of a tool's result."""
        data = event.data
        if source := data.get("source"):
            self.add_source(ReadSource(str(data["name"]), str(source), event.number, event.conversation))
        self.add(map(PartOrigin.from_record, data.get("origins", ())))
        self.has_output = self.has_output or data.get("name") not in _INWARD
        self.add_strangers(map(str, data.get("strangers", ())))

    def add_strangers(self, names: Iterable[str]) -> None:
        """Add strangers whose text was read; an empty name is none."""
        self.strangers |= dict.fromkeys(each for each in names if each)

    def to_record(self) -> dict[str, Any]:
        """Return the fields of the event that begins a conversation with these sources."""
        record: dict[str, Any] = {"origins": [each.to_record() for each in self.parts.values()]} if self.parts else {}
        record |= self.sources_record()
        if self.strangers:
            record["strangers"] = list(self.strangers)
        return {**record, "has_output": True} if self.has_output else record

    def sources_record(self, conversation: str = "") -> dict[str, Any]:
        """Return the field ``sources`` of an event of ``conversation``; nothing if no source was read."""
        return {"sources": [each.to_record(conversation) for each in self.sources.values()]} if self.sources else {}

    def find_untrusted(self) -> list[PartOrigin]:
        """Return the parts whose skills no person trusts, by the registry as it is now."""
        if not self.parts:
            return []
        try:
            skills = self._open_registry().skills()
        except HermesError:
            return list(self.parts.values())
        return [
            each
            for each in self.parts.values()
            if (skill := skills.get(each.skill)) is None or not skill.is_trusted(each.digest)
        ]

    def _open_registry(self) -> Registry:
        from hermes_exec_agent.skills.registry.registry import Registry

        if self._registry is None:
            self._registry = Registry()
        return self._registry


def describe_untrusted(parts: list[PartOrigin]) -> str:
    """Return why an act is asked for, and what ends that, in one line."""
    named = ", ".join(f"{each.skill} ({each.source})" for each in parts[:_NAMED])
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    noun = "skill" if len(parts) == 1 else "skills"
    remedy = f"hermes-exec skill trust {parts[0].skill}"
    return f"asked because this conversation read text of the untrusted {noun} {named}{more}; {remedy} ends this"


def describe_strangers(strangers: Iterable[str]) -> str:
    """Return why an act is asked for that may leave the workspace, in one line."""
    named = list(strangers)
    shown = ", ".join("the web" if each == "web" else flatten(each, 60) for each in named[:_NAMED])
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"asked because this conversation read text from {shown}{more}, and this may act outside of the workspace"
