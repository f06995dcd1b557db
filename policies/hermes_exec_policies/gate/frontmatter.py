"""Parse the front matter of SKILL.md with the format's reference library, in a child process, as it may hang."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from strictyaml.ruamel import Node

_FIELDS = frozenset({"name", "description", "license", "allowed-tools", "metadata", "compatibility"})
_TEXTS = ("license", "compatibility", "allowed-tools", "description", "name")
_PARTS = 3
_LENGTHS = {"description": 1024, "compatibility": 500}
"""Characters that the format allows. Public skills exceed it, so longer ones are advice in lenient use."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the fields and the body of a text, all errors for a folder of the given name, and the fields it ignored.

    With ``lenient``, values may be in YAML's flow style, and unknown fields and long texts are no errors.
    """
    from skills_ref.errors import SkillError
    from skills_ref.parser import parse_frontmatter
    from skills_ref.validator import validate_metadata

    text, lenient = question["text"], question.get("lenient", False)
    folder = cast("Path", Path(question["folder"]) if question["folder"] else None)
    ignored: list[str] = []
    try:
        fields, body = parse_frontmatter(text)
    except SkillError as error:
        rewritten, ignored = _rewrite(text) if lenient else ("", [])
        try:
            fields, body = parse_frontmatter(rewritten)
        except SkillError:
            return {"errors": [_describe(error)], "fields": {}, "body": "", "ignored": [], "long": {}}
    if lenient:
        ignored += [str(name) for name in fields if name not in _FIELDS]
        fields = {name: value for name, value in fields.items() if name in _FIELDS}
    long = {name: limit for name, limit in _LENGTHS.items() if len(str(fields.get(name, ""))) > limit}
    checked = fields | {name: str(fields[name])[:limit] for name, limit in long.items()} if lenient else fields
    errors = validate_metadata(checked, folder)
    if not lenient:
        errors += _find_loose_types(text, fields)
    return {"errors": errors, "fields": fields, "body": body, "ignored": ignored, "long": long}


def _describe(error: Exception) -> str:
    """Return the error with the line of the front matter that it names, without the parser's quotation."""
    lines = [line.strip() for line in str(error).splitlines()]
    where = next((line for line in lines if line.startswith("in ") and ", line " in line), "")
    number = where.rpartition(", line ")[2].partition(" ")[0].partition(":")[0]
    what = next((line for line in lines[1:] if line and not line.startswith(("in ", '"', "^"))), "")
    parts = [lines[0], f"line {number}" if number.isdigit() else "", what]
    return ": ".join(part for part in parts if part)


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
        node.value = [pair for name, pair in zip(names, pairs, strict=True) if name in _FIELDS]
        _use_block_style(node)
        known = ruamel.serialize(node, Dumper=ruamel.SafeDumper, allow_unicode=True)
    except (ruamel.YAMLError, RecursionError):
        return "", []
    return f"---\n{known}---{parts[2]}", [name for name in names if name not in _FIELDS]


def _use_block_style(node: Node) -> None:
    from strictyaml import ruamel

    if isinstance(node, ruamel.CollectionNode):
        node.flow_style = False
        for each in cast("list[Node | tuple[Node, Node]]", node.value):
            for part in each if isinstance(each, tuple) else (each,):
                _use_block_style(part)
