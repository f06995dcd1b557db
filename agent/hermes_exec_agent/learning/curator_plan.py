"""Find the skills that the curator may archive or merge.

Only skills that the agent wrote are touched: every version of such a skill has the origin ``agent`` or ``untrusted``,
and an unknown origin counts as another one. Any event of a skill except its archiving counts as a use.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.search import read_body

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hermes_exec_agent.skills.registry.counts import Uses
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry

DAY_S = 86400.0
STALE_S = 30 * DAY_S
ARCHIVE_S = 90 * DAY_S
_AGENT = Origin(kind="agent").describe()
_AGENTS = frozenset({_AGENT, Origin(kind="untrusted").describe()})
_LEAST_OF_GUIDES = 0.8
"""Likeness of guides that overlap: the share of common words."""
_LEAST_OF_FUNCTIONS = 0.5
"""Likeness of functions with one signature that overlap: cases prove more than words."""
_WORD = re.compile(r"\w+")
_UNTYPED = frozenset({"$schema", "description", "title", "examples"})
"""Keys of a schema that change no type."""


@dataclass(frozen=True, slots=True)
class UnusedSkill:
    """A skill without a use for some time."""

    name: str
    days: int

    @property
    def why(self) -> str:
        """The reason to archive it."""
        return f"no use for {self.days} days"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two skills for one purpose."""

    keep: str
    """The one with more uses, or the older one."""
    drop: str
    likeness: float
    """The share of common words, from 0 to 1."""

    @property
    def why(self) -> str:
        """The reason to merge them."""
        return f"the same signature, and {self.likeness:.0%} of the words in common"


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes that the curator would make."""

    archive: tuple[UnusedSkill, ...]
    stale: tuple[UnusedSkill, ...]
    """Skills that it will archive unless they are used."""
    overlaps: tuple[Overlap, ...]
    exempt: Mapping[str, str]
    """Skills that it does not touch, and why."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)


def find_exemption(skill: Skill, exempt: Collection[str]) -> str:
    """Return why the curator does not touch a skill; empty if it may."""
    if skill.name in exempt:
        return "it is named in curator_exempt"
    if skill.pinned:
        return "it is pinned"
    for event in skill.versions.values():
        if (origin := str(event.facts.get("origin", "unknown"))) not in _AGENTS:
            return f"version {event.version} is not the agent's: {origin}"
    return ""


def measure_unused(skill: Skill, uses: Uses, now: float) -> float:
    """Return the seconds since the last use of a skill; negative if the clock went back since then.

    Before counting began nothing is known, so that time counts as used.
    """
    last = uses.by_name.get(skill.name, (0, 0.0))[1]
    events = [event.at for event in skill.history if event.kind != "archived"]
    return now - max(last, now if uses.since is None else uses.since, *events)


def make_plan(
    registry: Registry, uses: Uses, *, now: float, exempt: Collection[str] = (), apart: Collection[frozenset[str]] = ()
) -> Plan:
    """Return the changes that the curator would make to a library.

    Args:
        registry: the library.
        uses: of its skills.
        now: in seconds since 1970.
        exempt: names of skills that are not touched.
        apart: pairs of names that a person has parted, which are not merged again.

    Raises:
        Refused: another program changed the registry.
    """
    reasons: dict[str, str] = {}
    archive: list[UnusedSkill] = []
    stale: list[UnusedSkill] = []
    used: list[Skill] = []
    for name, skill in sorted(registry.skills().items()):
        if skill.archived:
            continue
        if why := find_exemption(skill, exempt):
            reasons[name] = why
            continue
        unused_s = measure_unused(skill, uses, now)
        unused = UnusedSkill(name, int(unused_s // DAY_S))
        if unused_s >= ARCHIVE_S:
            archive.append(unused)
            continue
        used.append(skill)
        if unused_s >= STALE_S:
            stale.append(unused)
    overlaps = _find_overlaps(registry, used, uses, apart)
    return Plan(tuple(archive), tuple(stale), tuple(overlaps), reasons)


def _find_overlaps(
    registry: Registry, skills: Collection[Skill], uses: Uses, apart: Collection[frozenset[str]]
) -> Iterator[Overlap]:
    """Yield the pairs that overlap, the most alike first; each skill is in one pair at most."""
    groups: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    known = {skill.name: skill for skill in skills}
    for skill in skills:
        if skill.kept_back or skill.script_grants or skill.versions[skill.current].facts["origin"] != _AGENT:
            continue
        try:
            version = registry.read_version(skill)
        except HermesError:
            continue
        text = f"{version.summary}\n{read_body(registry, version)}".lower()
        groups[_describe_signature(version)][skill.name] = frozenset(_WORD.findall(text))
    pairs = [
        pair
        for signature, texts in groups.items()
        for pair in find_similar(texts, _LEAST_OF_FUNCTIONS if signature.startswith("{") else _LEAST_OF_GUIDES)
        if frozenset(pair[1:]) not in apart
    ]
    taken: set[str] = set()
    for likeness, one, other in sorted(pairs, key=lambda pair: (-pair[0], pair[1:])):
        if taken.isdisjoint({one, other}):
            taken |= {one, other}
            keep, drop = sorted(
                (one, other), key=lambda name: (-uses.by_name.get(name, (0, 0.0))[0], known[name].history[0].seq)
            )
            yield Overlap(keep, drop, round(likeness, 3))


def find_similar(texts: Mapping[str, frozenset[str]], least: float) -> Iterator[tuple[float, str, str]]:
    """Yield the pairs of texts whose share of common words is ``least`` or more, with that share.

    Two such texts have one of their rarest words in common, so only texts that share one are compared.
    """
    frequency = Counter(word for words in texts.values() for word in words)
    index: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        words = sorted(texts[name], key=lambda word: (frequency[word], word))
        rarest = words[: len(words) - math.ceil(least * len(words)) + 1]
        for other in {other for word in rarest for other in index[word]}:
            likeness = len(texts[name] & texts[other]) / len(texts[name] | texts[other])
            if likeness >= least:
                yield likeness, min(name, other), max(name, other)
        for word in rarest:
            index[word].append(name)


def _describe_signature(version: Version) -> str:
    """Return a text that is equal for skills of one use: the types of a function, or the scripts of a guide."""
    if version.is_function:
        return json.dumps(_strip_texts(dict(version.schema)), sort_keys=True)
    scripts = [each.path for each in version.files if each.path.startswith("scripts/")]
    return f"guide {' '.join(version.rights)} {' '.join(scripts)}"


def _strip_texts(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _strip_texts(each) for key, each in fields.items() if key not in _UNTYPED}
    if isinstance(value, list):
        return [_strip_texts(each) for each in value]  # pyright: ignore[reportUnknownVariableType]  JSON
    return value
