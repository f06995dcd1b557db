"""Parse the front matter of SKILL.md with the format's reference library, within bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate.verdict import Finding, functional

if TYPE_CHECKING:
    from strictyaml.ruamel import Node

_FIELDS = frozenset({"name", "description", "license", "allowed-tools", "metadata", "compatibility"})
_TEXTS = ("license", "compatibility", "allowed-tools", "description", "name")
_PARTS = 3
_MAX_TEXT = 256 << 10
_MAX_FRONT = 16 << 10
_MAX_FRONT_LINES = 200
_MAX_INDENT = 16
_MAX_BRACKETS = 128
_NESTED = re.compile(r"(?:[-?:][ \t]+){16}")
"""Nested lists on one line."""
_LENGTHS = {"description": 1024, "compatibility": 500}
"""Characters that the format allows. Public skills exceed it, so longer ones are advice in lenient use."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The first part of SKILL.md as the format's reference library reads it, and the text after it."""

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    body: str = ""
    ignored: tuple[str, ...] = ()
    """Fields that the format does not have."""
    long: dict[str, int] = field(default_factory=dict[str, int])
    """Fields that are longer than the format allows, and their limits."""
    errors: tuple[Finding, ...] = ()
    """All errors; the other values are empty then."""


def parse_front_matter(text: str, folder: str, *, lenient: bool) -> FrontMatter:
    """Parse and validate the front matter of SKILL.md, the ``text`` of a whole file.

    ``folder`` is the name of its folder, which must be the skill's; not compared if empty. With ``lenient``, values may
    be in YAML's flow style, and unknown fields and long texts are not errors.
    """
    from skills_ref.errors import SkillError
    from skills_ref.parser import parse_frontmatter
    from skills_ref.validator import validate_metadata

    text = text.replace("\r\n", "\n")
    if wrong := _check_bounds(text):
        return FrontMatter(errors=(wrong,))
    ignored: list[str] = []
    try:
        fields, body = parse_frontmatter(text)
    except SkillError as error:
        rewritten, ignored = _rewrite(text) if lenient else ("", [])
        try:
            fields, body = parse_frontmatter(rewritten)
        except SkillError:
            what, line = _describe(error)
            return FrontMatter(errors=(functional("manifest.format", what, "SKILL.md", line),))
    if lenient:
        ignored += [str(name) for name in fields if name not in _FIELDS]
        fields = {name: value for name, value in fields.items() if name in _FIELDS}
    long = {name: limit for name, limit in _LENGTHS.items() if len(str(fields.get(name, ""))) > limit}
    checked = fields | {name: str(fields[name])[:limit] for name, limit in long.items()} if lenient else fields
    errors = validate_metadata(checked, cast("Path", Path(folder) if folder else None))
    if not lenient:
        errors += _find_loose_types(text, fields)
    if errors:
        return FrontMatter(errors=tuple(functional("manifest.format", each, "SKILL.md") for each in errors))
    return FrontMatter(fields, body, tuple(ignored), long)


def _check_bounds(text: str) -> Finding | None:
    """Return a finding about front matter that would keep a YAML parser busy, or that two would read differently."""
    lines = text.split("\n")
    if len(text) > _MAX_TEXT:
        return functional("manifest.size", f"it is longer than {_MAX_TEXT} characters", "SKILL.md")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if lines[0].rstrip() != "---" or not end:
        wrong = "it does not begin with a part between lines of '---': begin with ---, name: …, description: …, ---"
        return functional("manifest.format", wrong, "SKILL.md")
    front = lines[1:end]
    joined = "\n".join(front)
    if len(joined) > _MAX_FRONT or len(front) > _MAX_FRONT_LINES:
        return functional("manifest.size", f"its first part is longer than {_MAX_FRONT} characters", "SKILL.md")
    indent = max((len(line) - len(line.lstrip(" ")) for line in front), default=0)
    if indent > _MAX_INDENT or joined.count("[") + joined.count("{") > _MAX_BRACKETS or _NESTED.search(joined):
        return functional("manifest.deep", "its first part is nested too deeply", "SKILL.md")
    for number, line in enumerate(front, 2):
        if "---" in line or line.rstrip() == "...":
            wrong = "its first part holds '---' or '...' within, where some readers end it: write a single dash"
            return functional("manifest.format", wrong, "SKILL.md", number)
    return None


def _describe(error: Exception) -> tuple[str, int]:
    """Return the parser's error without its quotations, and the line that it names or 0."""
    text = str(error)
    what = ": ".join(line.strip().rstrip(":") for line in text.splitlines() if line and not line.startswith(" "))
    numbers: list[str] = re.findall(r", line (\d+)", text)
    remedy = "; put a value with a colon in quotes" if "mapping values are not allowed" in text else ""
    return what + remedy, int(numbers[-1]) if numbers else 0


def _find_loose_types(text: str, fields: dict[str, Any]) -> list[str]:
    import strictyaml

    raw = cast("dict[str, object]", strictyaml.load(text.split("---", 2)[1]).data)
    errors: list[str] = []
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, object]", metadata).values()
    ):
        errors.append("Field 'metadata' must be a mapping of words to text")
    errors += [
        f"Field '{name}' must be text" for name in _TEXTS if name in fields and not isinstance(fields[name], str)
    ]
    return errors


def _rewrite(text: str) -> tuple[str, list[str]]:
    """Return the text without unknown fields, with every value in block style, and the names of those fields.

    The reference library refuses a whole file for an unknown ``tags: [a, b]``.
    """
    from strictyaml import ruamel

    parts = text.split("---", 2)
    try:
        node = ruamel.compose(parts[1], Loader=ruamel.SafeLoader)
        if len(parts) != _PARTS or not isinstance(node, ruamel.MappingNode):
            return "", []
        pairs = cast("list[tuple[Node, Node]]", node.value)
        names = [str(key.value) for key, _ in pairs]
        seen: set[int] = set()
        node.value = [
            (key, _block_style(value, seen)) for (key, value), name in zip(pairs, names, strict=True) if name in _FIELDS
        ]
        node.flow_style = False
        known = ruamel.serialize(node, Dumper=ruamel.SafeDumper, allow_unicode=True)
    except (ruamel.YAMLError, RecursionError):
        return "", []
    return f"---\n{known}---{parts[2]}", list(dict.fromkeys(name for name in names if name not in _FIELDS))


def _block_style(node: Node, seen: set[int]) -> Node:
    """Return a node in block style, which has no spelling for an empty list or mapping: those become empty texts.

    Raises:
        YAMLError: it is an alias of one in ``seen``; the format has none, and aliases of aliases grow without end.
    """
    from strictyaml import ruamel

    if not isinstance(node, ruamel.CollectionNode):
        return node
    if id(node) in seen:
        raise ruamel.YAMLError
    seen.add(id(node))
    if not node.value:
        return ruamel.ScalarNode("tag:yaml.org,2002:str", "")
    node.flow_style = False
    if isinstance(node, ruamel.MappingNode):
        node.value = [(key, _block_style(value, seen)) for key, value in cast("list[tuple[Node, Node]]", node.value)]
    else:
        node.value = [_block_style(each, seen) for each in cast("list[Node]", node.value)]
    return node
