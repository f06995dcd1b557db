"""The skills that a model may read now, and those whose words fit a request.

The fields of a skill come from the registry's signed list, which has the beginnings of descriptions. The complete
descriptions, which are ranked, are in the records of the versions; verifying 1,000 of these takes half a second, so
they are kept in a file by the digests of the versions.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import write_private
from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.skill_words import WordIndex, WordMatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.registry import Registry

MOST = 10
"""Skills that are named for a request."""
_LEAST = 1.5
"""Evidence by words that a request needs, if words alone decide: about two rare words of one skill."""
_NEAR = 0.5
"""Fraction of the best score that another skill needs to be named, too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill that a model may read."""

    name: str
    number: int
    """Of its current version."""
    digest: str
    summary: str
    """The complete description."""
    origin: str
    """In one line."""
    is_function: bool
    is_material: bool
    """Whether its text is material to judge."""


def read_entries(registry: Registry) -> list[Entry]:
    """Return the skills whose current version may be read, by name; none that is archived or in quarantine.

    Raises:
        Refused: another program changed the registry.
    """
    ready = [each for each in registry.list_facts() if each["state"] in {"ready", "pinned"}]
    summaries = _read_summaries(registry, ready)
    return [_create_entry(each, summaries[str(each["digest"])]) for each in ready]


def _create_entry(facts: Mapping[str, Any], summary: str) -> Entry:
    return Entry(
        name=str(facts["name"]),
        number=int(facts["version"]),
        digest=str(facts["digest"]),
        summary=summary,
        origin=str(facts["origin"]),
        is_function="call" in facts["rights"],
        is_material=bool(facts["material"]) and not facts["trusted"],
    )


def _read_summaries(registry: Registry, ready: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the complete description of each of these skills, by the version's digest."""
    path, skills = registry.home.descriptions, registry.skills()
    kept = _read_file(path)
    found: dict[str, str] = {}
    for facts in ready:
        digest, beginning = str(facts["digest"]), str(facts["summary"])
        text = kept.get(digest, "")
        if not text or not text.startswith(beginning):
            text = registry.read_version(skills[str(facts["name"])]).summary
        found[digest] = text
    if found.items() - kept.items():
        with contextlib.suppress(OSError, HermesError):  # a full disk costs only the time to read them again
            write_private(path, json.dumps(found, ensure_ascii=False).encode())
    return found


def _read_file(path: Path) -> dict[str, str]:
    try:
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    entries = cast("dict[str, object]", found)
    return {digest: text for digest, text in entries.items() if isinstance(text, str)}


class SkillIndex:
    """Skills and their words."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._words = WordIndex([(each.name, each.summary) for each in entries])

    def match(self, request: str) -> dict[int, WordMatch]:
        """Return the match of each skill that has a word of the request, by its number in `entries`."""
        return self._words.match(request)

    def find_by_words(self, request: str) -> list[Entry]:
        """Return the few skills whose words fit the request, best first."""
        found = self.match(request)
        best = max((each.evidence for each in found.values()), default=0.0)
        if best < _LEAST:
            return []
        ranked = sorted(found, key=lambda number: (-found[number].evidence, -found[number].score))
        return [self.entries[number] for number in ranked if found[number].evidence >= best * _NEAR][:MOST]
