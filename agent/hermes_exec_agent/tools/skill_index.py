"""Ranks skills by the words of a request, and names the few that fit it to a model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hermes_exec.errors import HermesError
from hermes_exec_agent.quoting import flatten, quote
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.tools.tool import Context

T = TypeVar("T")
_WORD = re.compile(r"[^\W_]+")
_COMMON_WORDS = (
    "a an and any are as at be by can do for from get give has have how i if in into is it its make me my "
    "new no not of on or our please should so some that the their them then there these this to up use "
    "used user using want we what when where which who why will with would you your skill file create "
    "write run "
)
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that say nothing about a subject."""
_NAME_WEIGHT = 3.0
_PREFIX = 5
"""Letters that two words must have in common if one is the beginning of the other, such as ``async``."""
_LONGEST_REQUEST = 8000
_MOST = 5
"""Skills that a note names."""
_NEAR = 0.5
"""Fraction of the best score that another skill needs to be named, too."""
_INTRODUCTION = "Skills that may fit this request by their words; skill_view shows one, if it is of use:"


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill that the index offers."""

    skill: Skill
    version: Version

    @property
    def is_material(self) -> bool:
        """Whether its text is material to judge."""
        return self.version.origin.is_material and not self.skill.is_trusted(self.version.digest)


def read_entries(registry: Registry) -> list[Entry]:
    """Return the skills whose current version may be read, by name; none that is archived or in quarantine."""
    skills = registry.skills()
    ready = [skills[name] for name in sorted(skills) if skills[name].state in {"ready", "pinned"}]
    return [Entry(each, registry.read_version(each)) for each in ready]


def rank(query: str, candidates: Sequence[tuple[T, str, str]]) -> list[tuple[float, T]]:
    """Rank items by the words of ``query``, best first; those without any of them are left out.

    A word counts the more, the fewer items have it, and more in a name than in a description.

    Args:
        query: words, or a whole request.
        candidates: items, each with its name and its description.
    """
    wanted = _split_words(query)
    texts = [(item, _split_words(name), _split_words(about)) for item, name, about in candidates]
    scores = [0.0] * len(texts)
    for word in wanted:
        found = [max(_NAME_WEIGHT * _match(word, name), _match(word, about)) for _, name, about in texts]
        if count := sum(map(bool, found)):
            weight = math.log(1 + len(texts) / count)
            scores = [score + weight * each for score, each in zip(scores, found, strict=True)]
    ranked = [(score, item) for score, (item, *_) in zip(scores, texts, strict=True) if score]
    return sorted(ranked, key=lambda each: -each[0])


def describe_fitting(context: Context, request: str) -> str:
    """Return a note that names the skills whose words fit the request; empty if none do.

    An untrusted skill is named without its description, which could instruct.
    """
    from hermes_exec_agent.skills.registry.home import default_home

    try:
        if not default_home().log.exists():
            return ""
        entries = read_entries(context.service(Skillset).registry)
    except HermesError:  # a registry that cannot be read offers nothing; the tools say why
        return ""
    return format_note(request, entries)


def format_note(request: str, entries: Sequence[Entry]) -> str:
    """Return the note for these skills."""
    found = find_fitting(request, entries)
    return "\n".join([_INTRODUCTION, *map(_format_line, found)]) if found else ""


def find_fitting(request: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the few skills whose words fit the request, best first."""
    known = [(each, each.version.name, each.version.summary) for each in entries]
    words = _split_words(request[:_LONGEST_REQUEST])
    ranked = [each for each in rank(request[:_LONGEST_REQUEST], known) if _fits(words, each[1])]
    return [item for score, item in ranked if score >= ranked[0][0] * _NEAR][:_MOST]


def _fits(words: Iterable[str], entry: Entry) -> bool:
    """Whether a request has a word of the name, or two of the description: one alone is an accident."""
    name, about = _split_words(entry.version.name), _split_words(entry.version.summary)
    return any(_match(word, name) for word in words) or sum(_match(word, about) for word in words) >= 2


def _format_line(entry: Entry) -> str:
    version = entry.version
    kind = "function" if version.is_function else "guide"
    origin = flatten(version.origin.describe(), 60)
    if entry.is_material:
        return f"- {version.name} ({kind}, {origin}, not trusted by the person)"
    return f"- {version.name} ({kind}, {origin}): {quote(version.summary, 200)}"


def _split_words(text: str) -> frozenset[str]:
    return frozenset(_stem(each) for each in _WORD.findall(text.casefold()) if each not in _COMMON and len(each) > 1)


def _stem(word: str) -> str:
    """Return a word without its English ending, so that ``debugging`` and ``debug`` are one."""
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= _PREFIX - 2 and not word.endswith("ss"):
            word = word.removesuffix(ending) + instead
            break
    return word[:-1] if len(word) > _PREFIX - 1 and word[-1] == word[-2] else word


def _match(word: str, words: Iterable[str]) -> float:
    """Return 1 for an equal word, a half for one that begins alike, else 0."""
    if word in words:
        return 1.0
    if len(word) >= _PREFIX and any(
        len(each) >= _PREFIX and (each.startswith(word) or word.startswith(each)) for each in words
    ):
        return 0.5
    return 0.0
