"""The form of a guide that a review writes: a short SKILL.md with five sections, and the merge of two of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_exec_agent.learning.curator_merge import MOST_LINES, split_paragraphs

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS = ("Context", "Prerequisites", "Steps", "Pitfalls", "Variations")
"""The headings that a guide must have, in any case and at any level."""
_BEGIN = ""
"""The part before the first of these headings."""
_REPLACED = "Steps"
"""The section of which a merge keeps only the newer text: two ways to do one thing contradict each other."""
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(?:\d+[.)]\s*)?(.*?)[\s:#]*$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


def find_form_problem(manifest: str) -> str:
    """Return why a SKILL.md is not of this form, with a remedy; empty if it is."""
    lines = len(manifest.splitlines())
    if lines > MOST_LINES:
        return f"SKILL.md has {lines} lines, and a guide at most {MOST_LINES}: shorten it, or use references/"
    sections = split_sections(split_front_matter(manifest)[1])
    absent = [each for each in SECTIONS if not "".join(sections.get(each, ())).strip()]
    if absent:
        return (
            f"SKILL.md has no section, or an empty one, with the heading {', '.join(absent)}: write one line at least"
        )
    return ""


def split_front_matter(manifest: str) -> tuple[str, str]:
    """Return the front matter of a SKILL.md with its marks, and the text after it."""
    head, mark, rest = manifest.partition("\n---")
    if not manifest.startswith("---") or not mark:
        return "", manifest
    end, newline, body = rest.partition("\n")
    return f"{head}{mark}{end}{newline}", body


def split_sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section without its heading; of one that occurs twice, those of both.

    Other headings, and those in fenced blocks, belong to the section before.
    """
    names = {each.casefold(): each for each in SECTIONS}
    sections: dict[str, list[str]] = {_BEGIN: []}
    current, fence = _BEGIN, ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line)
        name = names.get(heading[1].strip("*_ ").casefold()) if heading else None
        if name is None:
            sections[current].append(line)
        else:
            current = name
            sections.setdefault(current, [])
    return sections


def merge_guides(older: str, newer: str) -> str:
    """Return the SKILL.md ``older`` with what ``newer`` adds: its steps, and its lines that the other sections lack."""
    front, text = split_front_matter(older)
    before, after = split_sections(text), split_sections(split_front_matter(newer)[1])
    parts = ["\n".join(before[_BEGIN]).strip("\n")]
    for name in SECTIONS:
        lines = after[name] if name == _REPLACED else _join_lines(before.get(name, []), after[name])
        parts.append(f"## {name}\n" + "\n".join(lines).strip("\n"))
    return front + "\n\n".join(filter(None, parts)) + "\n"


def _join_lines(older: list[str], newer: list[str]) -> list[str]:
    known = {line.strip() for line in older}
    joined = "\n".join(older).rstrip().splitlines()
    for paragraph in split_paragraphs("\n".join(newer)):
        new = [line for line in paragraph if line.strip() not in known]
        if new and any(_FENCE.match(line) for line in paragraph):
            new = paragraph
        joined += new
    return joined


def merge_files(older: Mapping[str, bytes], newer: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of both guides; of files with one name the newer one, and SKILL.md as `merge_guides` does it."""
    manifest = merge_guides(older["SKILL.md"].decode("utf-8", "replace"), newer["SKILL.md"].decode("utf-8", "replace"))
    return {**older, **newer, "SKILL.md": manifest.encode()}
