"""Names the skills that fit a request, next to the request: a skill that the model has to ask for is seldom used.

The system message never changes. Words decide; if requests can be compared by meaning, both decide together. The note
names no skill that the model can still read in an earlier note, or whose text it has read, unless a new version is
current, or the skill fits best now and did not then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.quoting import flatten, quote
from hermes_exec_agent.tools.skill_index import MOST, Entry, SkillIndex, read_entries
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.memory.longterm.skill_meaning import Comparison
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.skills.registry.record import Skill
    from hermes_exec_agent.tools.tool import Context

SOURCE = "skills"
"""The source of the part, in the record of a request."""
INTRODUCTION = "Skills that may fit this request; skill_view shows one, if it is of use:"
_LONGEST = 60
"""Characters of a description."""
_LONGEST_ORIGIN = 60
_MOST_TOKENS = 600
_LEAST_LEANING = 0.27
"""The leaning to work, with the evidence by words, that a request needs."""
_EVIDENCE = 0.4
"""The weight of the evidence by words in that sum."""
_LEAST_NEARNESS = 1.0
"""The nearness, with the evidence by words, that a skill needs."""
_EVIDENCE_OF_SKILL = 0.8
"""The weight of the evidence by words in that sum."""
_NO_SKILLS = SkillIndex([])


class SkillRecall:
    """Recalls skills for one conversation."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._skills: Mapping[str, Skill] | None = None
        self._index = _NO_SKILLS
        self.registry_log: Path | None = None
        """The file without which there is no skill, after the first request."""

    async def find_parts(self, request: str, messages: Sequence[Message]) -> list[dict[str, object]]:
        """Return the part that names the skills which fit a request; none if no skill does, or all were named.

        Args:
            request: the person's words.
            messages: all that the model reads with it.
        """
        meaning, comparison = self._context.skill_meaning, None
        if meaning is not None:
            if not (await asyncio.to_thread(self._read_index)).entries:
                return []
            comparison = await meaning.compare(request)
        return await asyncio.to_thread(self._find_parts, request, comparison, messages)

    def _find_parts(
        self, request: str, comparison: Comparison | None, messages: Sequence[Message]
    ) -> list[dict[str, object]]:
        index = self._read_index()
        if not index.entries:
            return []
        found = find_fitting(index, request, comparison)
        new = [entry for place, entry in enumerate(found) if not _is_known(entry, messages, is_best=place == 0)]
        note = format_note(new)
        return [{"source": SOURCE, "content": note}] if note else []

    def _read_index(self) -> SkillIndex:
        """Return the index of the registry as it is now, which is read again after a change alone."""
        try:
            if self.registry_log is None:
                self.registry_log = _find_registry_log()
            if not self.registry_log.exists():
                return _NO_SKILLS
            registry = self._context.service(Skillset).registry
            skills = registry.skills()
            if skills is not self._skills:
                self._index, self._skills = SkillIndex(read_entries(registry)), skills
        except HermesError:  # a registry that cannot be read offers nothing; the tools say why
            return _NO_SKILLS
        return self._index


def _find_registry_log() -> Path:
    from hermes_exec_agent.skills.registry.home import default_home

    return default_home().log


def find_fitting(index: SkillIndex, request: str, comparison: Comparison | None) -> list[Entry]:
    """Return the skills that fit a request, best first.

    Args:
        index: the skills.
        request: the person's words.
        comparison: of the request by meaning; without one, words alone decide.
    """
    if comparison is None:
        return index.find_by_words(request)
    evidence = {number: match.evidence for number, match in index.match(request).items()}
    if comparison.leaning + _EVIDENCE * max(evidence.values(), default=0.0) < _LEAST_LEANING:
        return []
    scores = {number: _EVIDENCE_OF_SKILL * found for number, found in evidence.items()}
    for number, entry in enumerate(index.entries):
        if entry.name in comparison.nearness:
            scores[number] = scores.get(number, 0.0) + comparison.nearness[entry.name]
    ranked = sorted(scores, key=lambda number: (-scores[number], index.entries[number].name))
    return [index.entries[number] for number in ranked if scores[number] >= _LEAST_NEARNESS][:MOST]


def format_note(entries: Iterable[Entry]) -> str:
    """Return the note that names these skills, of at most 600 tokens; empty without any."""
    lines = list(_fit_lines(entries))
    return "\n".join([INTRODUCTION, *lines]) if lines else ""


def _is_known(entry: Entry, messages: Iterable[Message], *, is_best: bool) -> bool:
    """Whether the model can read this version, or a line that names it; for the best one, a first line."""
    loaded = f"\\n{_identify(entry)}, rights: "  # a line of the result of skill_view, which is JSON
    named = f"\n- {_identify(entry)} ("
    if is_best:
        named = INTRODUCTION + named
    return any((loaded if each.role == "tool" else named) in each.content for each in messages)


def _identify(entry: Entry) -> str:
    return f"{entry.name} {entry.number}"


def _fit_lines(entries: Iterable[Entry]) -> Iterator[str]:
    from hermes_exec_agent.memory.longterm.recall import estimate_tokens

    left = _MOST_TOKENS - estimate_tokens(INTRODUCTION)
    for each in entries:
        line = _format_line(each)
        left -= estimate_tokens(line) + 1
        if left < 0:
            return
        yield line


def _format_line(entry: Entry) -> str:
    """Return the line of a skill; an untrusted description could instruct, and is left out."""
    kind = "function" if entry.is_function else "guide"
    about = ", ".join(filter(None, [kind, flatten(entry.origin, _LONGEST_ORIGIN)]))
    if entry.is_material:
        return f"- {_identify(entry)} ({about}, not trusted by the person)"
    return f"- {_identify(entry)} ({about}): {quote(entry.summary, _LONGEST)}"
