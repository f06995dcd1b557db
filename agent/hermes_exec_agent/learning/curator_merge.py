"""Merge two skills that overlap: a new version of one that also does what the other did, and a proof of that.

A merged function has the code of the first skill, and the gate proves that it passes the cases of both. A merged guide
has the text of the first one and the paragraphs of the other that it lacks, and the gate checks its structure. Without
a proof nothing is registered.
"""

from __future__ import annotations

import platform
import re
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.admission import judge, list_expected_files
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.record import Author, Origin
from hermes_exec_agent.tools.skill_manage import write_files
from hermes_exec_policies.gate.analysis.own_tests import extract_cases
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report

_MANIFEST = "SKILL.md"
MOST_LINES = 400
"""Lines of a merged guide: longer ones help less than two short ones."""
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


class NotMerged(HermesError):
    """Two skills that overlap stay as they are; the message has the reason."""

    state = "both skills are unchanged"


async def merge(registry: Registry, keep: Version, drop: Version) -> Version:
    """Register the merged skill as the next version of ``keep``, with both versions as its ancestors.

    Raises:
        NotMerged: there is no proof that it does what both did.
        HermesError: it could not be judged or registered; nothing was registered.
    """
    from hermes_exec_policies.load import load_policy

    with private_folder() as folder:
        files, other = (_read_files(registry, each, folder / each.digest) for each in (keep, drop))
        merged = _merge_functions(files, drop) if keep.is_function else _merge_guides(files, other, drop)
        tree = write_files(merged, folder / keep.name, keep)
        report = await _judge(registry, tree, keep, drop, other)
        if not report.accepted:
            raise NotMerged(f"the gate did not accept it: {'; '.join(report.reasons[:3])}")
        if report.rights != keep.rights:
            raise NotMerged(f"it would have the rights {', '.join(report.rights)}, not {', '.join(keep.rights)}")
        return registry.register(
            tree,
            report,
            load_policy(report.policy),
            author=_join_authors(keep.author, drop.author),
            kernel=platform.release(),
            origin=Origin(kind="agent"),
            ancestors=(keep, drop),
        )


def _read_files(registry: Registry, version: Version, into: Path) -> dict[str, bytes]:
    """Return the files of a version, compared with the signed list."""
    content.copy_verified(registry.tree(version), version.files, into)
    return {each.path: (into / each.path).read_bytes() for each in version.files}


async def _judge(registry: Registry, tree: Tree, keep: Version, drop: Version, dropped: Mapping[str, bytes]) -> Report:
    if not keep.is_function:
        from hermes_exec_policies.gate.guide import check_guide

        return await check_guide(tree, taken=registry.skills().keys() - {keep.name})
    if not _join_authors(keep.author, drop.author).is_confined:
        raise NotMerged("an author of one of them could have bypassed the gate")
    if _has_grants(keep) or _has_grants(drop):
        raise NotMerged("a person granted one of them more than others have")
    cases = [*_list_recorded_cases(keep), *_list_cases(drop, dropped)]
    files = {*list_expected_files(keep), *list_expected_files(drop)}
    report = await judge(registry, tree, cases=cases, files=files)
    if report.accepted and _rank(report.level) < _rank(keep.level):
        raise NotMerged(f"its evidence would be weaker: {report.level}, not {keep.level}")
    return report


def _rank(level: str) -> int:
    return list(Level).index(Level(level))


def _has_grants(version: Version) -> bool:
    from hermes_exec_policies.gate.grants import Grants

    return bool(version.grants) and Grants.from_facts(version.grants) != Grants()


def _list_recorded_cases(version: Version) -> list[Case]:
    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    return [Case.from_facts(each) for each in recorded.get("held") or ()]


def _list_cases(version: Version, files: Mapping[str, bytes]) -> list[Case]:
    """Return the cases of a function: those that it passed, and those in its tests.

    Raises:
        NotMerged: there is none, so nothing would show that the merged function replaces it.
    """
    tests = [data.decode("utf-8", "replace") for path, data in files.items() if _is_test(path)]
    found = [*_list_recorded_cases(version), *extract_cases(tests, version.function)]
    if not found:
        raise NotMerged(f"{version.name} has no case that the merged function could pass")
    return found


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and path.endswith(".py")


def _join_authors(one: Author, other: Author) -> Author:
    """Return the author of what both wrote: confined only if both are."""
    shells = None if one.shells is None or other.shells is None else tuple(sorted({*one.shells, *other.shells}))
    return Author(kind="agent", name="curator", model=one.model, shells=shells)


def _merge_functions(files: Mapping[str, bytes], drop: Version) -> dict[str, bytes]:
    note = f"\n## Replaces `{drop.name}`\n{drop.summary}\n"
    return {**files, _MANIFEST: files[_MANIFEST].rstrip() + b"\n" + note.encode()}


def _merge_guides(files: Mapping[str, bytes], other: Mapping[str, bytes], drop: Version) -> dict[str, bytes]:
    """Return the files of both; of the other SKILL.md, the paragraphs with a line that the first one lacks.

    Raises:
        NotMerged: both have a file of one name with different content, or the text would be too long.
    """
    different = [path for path in files.keys() & other.keys() if files[path] != other[path] and path != _MANIFEST]
    if different:
        raise NotMerged(f"they have different files of one name: {', '.join(sorted(different)[:3])}")
    try:
        text, more = files[_MANIFEST].decode(), other[_MANIFEST].decode()
    except UnicodeDecodeError:
        raise NotMerged("SKILL.md is not UTF-8 text") from None
    known = {line.strip() for line in text.splitlines()}
    new = [each for each in split_paragraphs(_read_text(more)) if any(line.strip() not in known for line in each)]
    lines = [f"## From `{drop.name}`", drop.summary, *(line for each in new for line in ("", *each))]
    merged = f"{text.rstrip()}\n\n" + "\n".join(lines) + "\n"
    if len(merged.splitlines()) > MOST_LINES:
        raise NotMerged(f"the merged text would have more than {MOST_LINES} lines")
    return {**other, **files, _MANIFEST: merged.encode()}


def _read_text(manifest: str) -> str:
    """Return a SKILL.md without its front matter."""
    return manifest.partition("\n---")[2].partition("\n")[2]


def split_paragraphs(text: str) -> list[list[str]]:
    """Return the lines of each paragraph; a fenced block belongs to one paragraph as a whole."""
    paragraphs: list[list[str]] = [[]]
    fence = ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        if line.strip() or fence:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [each for each in paragraphs if each]
