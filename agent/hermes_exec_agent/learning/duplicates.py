"""Find the skill that does already what a new one would do, by its name, its words, or its meaning."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.guide_form import SECTIONS
from hermes_exec_agent.memory.origins import find_words, is_same_word
from hermes_exec_agent.skills.registry.search import read_body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry

_log = logging.getLogger("hermes_exec.agent")
_LEAST_OF_ABOUT = 0.4
"""The share of common words of name and description from which two skills are for one purpose.

Of the 19,900 pairs of 200 different skills, none has more than 0.22, and none a cosine above 0.91.
"""
_LEAST_OF_TEXT = 0.5
"""The same share of all words."""
_LEAST_OF_MEANING = 0.915
"""The cosine of name and description from which they are."""
_LEAST_WITH_MEANING = 0.15
"""The share of common words of name and description that nearness in meaning needs in addition."""
_STEM = 5
_NAME_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A skill that is not registered yet."""

    name: str
    about: str
    """Its description."""
    text: str
    """Of its SKILL.md, without the front matter."""
    is_function: bool


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The registered skill that a candidate repeats."""

    skill: Skill
    version: Version
    """The newest one, which may wait for a person."""
    why: str


def find_duplicate(registry: Registry, candidate: Candidate, embedder: Embedder | None = None) -> Duplicate | None:
    """Return the skill that a candidate repeats, or None.

    Archived skills count only by their name. Names are compared with all skills, and texts only with those of the same
    form: a guide with guides, a function with functions. An embedder that fails is left out.

    Raises:
        Refused: another program changed the registry.
    """
    skills = registry.skills()
    if (same := skills.get(candidate.name)) is not None:
        return Duplicate(same, _read_newest(registry, same), "it has the same name")
    known = [(skill, _read_newest(registry, skill)) for skill in skills.values() if not skill.archived]
    alike = [(skill, version) for skill, version in known if version.is_function == candidate.is_function]
    for skill, version in alike:
        if _have_same_words(candidate.name, skill.name):
            return Duplicate(skill, version, "their names have the same words")
    return _find_by_words(registry, candidate, alike) or _find_by_meaning(candidate, alike, embedder)


def _read_newest(registry: Registry, skill: Skill) -> Version:
    return registry.read_version(skill, max({skill.current, *skill.waiting}))


def _have_same_words(one: str, other: str) -> bool:
    words, others = ([word.removesuffix("s") for word in _NAME_WORD.findall(name)] for name in (one, other))
    return len(words) == len(others) and all(map(is_same_word, words, others))


def _find_by_words(
    registry: Registry, candidate: Candidate, known: Sequence[tuple[Skill, Version]]
) -> Duplicate | None:
    about, text = _stems(candidate.name, candidate.about), _stems(candidate.about, candidate.text)
    best: tuple[float, Duplicate] | None = None
    for skill, version in known:
        short = measure_likeness(about, _stems(version.name, version.summary))
        whole = measure_likeness(text, _stems(version.summary, _read_text(registry, version)))
        likeness = max(short / _LEAST_OF_ABOUT, whole / _LEAST_OF_TEXT)
        if likeness >= 1 and (best is None or likeness > best[0]):
            why = f"{short:.0%} of the words about them are common, and {whole:.0%} of all words"
            best = likeness, Duplicate(skill, version, why)
    return best and best[1]


def _read_text(registry: Registry, version: Version) -> str:
    from hermes_exec_agent.learning.guide_form import split_front_matter

    return split_front_matter(read_body(registry, version))[1]


def _find_by_meaning(
    candidate: Candidate, known: Sequence[tuple[Skill, Version]], embedder: Embedder | None
) -> Duplicate | None:
    if embedder is None or not known:
        return None
    texts = [_describe(version.name, version.summary) for _, version in known]
    try:
        vectors = embedder.embed([_describe(candidate.name, candidate.about), *texts], query=False)
    except HermesError as error:
        _log.warning("skills were compared by their words alone: %s", error)
        return None
    scores = vectors[1:] @ vectors[0]
    place = int(scores.argmax())
    skill, version = known[place]
    common = measure_likeness(_stems(candidate.name, candidate.about), _stems(version.name, version.summary))
    if scores[place] < _LEAST_OF_MEANING or common < _LEAST_WITH_MEANING:
        return None
    return Duplicate(skill, version, f"its description means nearly the same ({scores[place]:.2f})")


def _describe(name: str, about: str) -> str:
    return f"{name.replace('-', ' ')}: {about}"


def _stems(*texts: str) -> frozenset[str]:
    """Return the beginnings of the words that tell what texts are about."""
    words = find_words(" ".join(texts).replace("-", " "))
    return frozenset(word[:_STEM] for word in words) - {each.casefold()[:_STEM] for each in SECTIONS}


def measure_likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of common words, from 0 to 1."""
    return len(one & other) / len(one | other) if one | other else 0.0


def read_candidate(name: str, files: Mapping[str, bytes], about: str, *, is_function: bool) -> Candidate:
    """Return the candidate with these files and this description."""
    from hermes_exec_agent.learning.guide_form import split_front_matter

    text = split_front_matter(files.get("SKILL.md", b"").decode("utf-8", "replace"))[1]
    return Candidate(name, about, text, is_function)
