"""Read SKILL.md in the format of agentskills.io, and validate it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate import layout
from hermes_exec_policies.gate.child_process import Unanswered, ask
from hermes_exec_policies.gate.grants import Needs, parse_needs
from hermes_exec_policies.gate.skill_names import find_name_problem, module_name
from hermes_exec_policies.gate.source import Signature, read_signature
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, advice, functional, security

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hermes_exec_policies.gate.tree import Tree

_MAX_TEXT = 256 << 10
_MAX_FRONT = 16 << 10
_MAX_FRONT_LINES = 200
_MAX_INDENT = 16
_MAX_BRACKETS = 32
_NESTED = re.compile(r"(?:[-?:][ \t]+){16}")
"""Nested lists on one line."""
_CPU_S = 4
_MARKUP = re.compile(r"</\s*\w|<\s*(skill|system|assistant|user|tool|script|iframe|img)\b|<!--|\]\]>", re.IGNORECASE)
_MENTIONED = re.compile(r"(?<![\w./-])(?:scripts|references|templates|assets)/[A-Za-z0-9_./-]*[A-Za-z0-9_]")
_CLAIMS = ("created-by", "created_by", "verified", "pinned", "trusted", "signed", "official")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A skill's description of itself; facts that can be checked are never taken from it."""

    name: str
    """``generate-csv-report``"""
    module: str
    """``generate_csv_report``"""
    description: str
    version: str
    license: str
    metadata: Mapping[str, str]
    body: str
    entry: str
    """The path of the script with the skill's function."""
    signature: Signature
    needs: Needs

    def facts(self) -> dict[str, Any]:
        """Return the manifest as JSON data."""
        return {
            "name": self.name, "module": self.module, "description": self.description, "version": self.version,
            "license": self.license, "entry": self.entry, "function": self.signature.function,
            "schema": self.signature.schema, "needs": self.needs.facts(),
        }  # fmt: skip


async def read_manifest(tree: Tree, folder: str, taken: Collection[str] = ()) -> tuple[Manifest, list[Finding]]:
    """Read and validate a skill's SKILL.md; return the manifest, and findings that refuse nothing.

    ``folder`` is the name of the source's folder; ``taken`` are the names of other skills.

    Raises:
        SkillRefused: it is not a skill; the findings name every error.
    """
    found = layout.check_layout(tree)
    paths = {each.path for each in tree.files}
    if "SKILL.md" not in paths:
        raise SkillRefused(*found, functional("manifest.missing", "there is no SKILL.md"))
    if found:
        raise SkillRefused(*found)
    fields, body = await _fields(tree.read("SKILL.md").decode(), folder)
    name = str(fields["name"])
    metadata: dict[str, str] = fields.get("metadata") or {}
    found += _check_name(name, taken)
    found += [wrong for text in _texts(fields) for wrong in layout.check_characters("SKILL.md", text)]
    found += _check_description(str(fields["description"]))
    needs, wrong = parse_needs(metadata)
    found += wrong
    found += [
        functional("manifest.unlisted", f"SKILL.md speaks of {path}, which is not there", "SKILL.md")
        for path in sorted(set(_MENTIONED.findall(body)))
        if path not in paths and not any(each.startswith(path + "/") for each in paths)
    ]
    if found:
        raise SkillRefused(*found)
    module = module_name(name)
    entry, signature = _entry(tree, paths, module)
    manifest = Manifest(
        name=name, module=module, description=str(fields["description"]).strip(),
        version=metadata.get("version", ""), license=str(fields.get("license") or ""), metadata=metadata, body=body,
        entry=entry, signature=signature, needs=needs,
    )  # fmt: skip
    return manifest, _list_ignored(fields, metadata)


async def _fields(text: str, folder: str) -> tuple[dict[str, Any], str]:
    text = text.replace("\r\n", "\n")
    _check_bounds(text)
    try:
        told = await ask("hermes_exec_policies.gate.frontmatter", {"text": text, "folder": folder}, cpu_s=_CPU_S)
    except Unanswered as error:
        why = f"its first part cannot be read: {error.what}"
        raise SkillRefused(functional("manifest.unreadable", why, "SKILL.md")) from error
    if told["errors"]:
        raise SkillRefused(*(functional("manifest.format", each, "SKILL.md") for each in told["errors"]))
    return told["fields"], told["body"]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of the front matter as parsed, since YAML can write any character as an escape."""
    if isinstance(value, dict):
        for pair in value.items():  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(list(pair))  # pyright: ignore[reportUnknownArgumentType]  YAML
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(each)
    else:
        yield str(value)


def _check_bounds(text: str) -> None:
    """Refuse front matter that would keep a YAML parser busy, or that two parsers would read differently."""
    lines = text.split("\n")
    if len(text) > _MAX_TEXT:
        raise SkillRefused(functional("manifest.size", f"it is longer than {_MAX_TEXT} characters", "SKILL.md"))
    if lines[0] != "---" or "---" not in lines[1:]:
        raise SkillRefused(
            functional("manifest.format", "it does not begin with a part between lines of '---'", "SKILL.md")
        )
    front = lines[1 : lines.index("---", 1)]
    joined = "\n".join(front)
    if len(joined) > _MAX_FRONT or len(front) > _MAX_FRONT_LINES:
        raise SkillRefused(
            functional("manifest.size", f"its first part is longer than {_MAX_FRONT} characters", "SKILL.md")
        )
    indent = max((len(line) - len(line.lstrip(" ")) for line in front), default=0)
    if indent > _MAX_INDENT or joined.count("[") + joined.count("{") > _MAX_BRACKETS or _NESTED.search(joined):
        raise SkillRefused(functional("manifest.deep", "its first part is nested too deeply", "SKILL.md"))
    if "---" in joined or any(line.rstrip() == "..." for line in front):
        raise SkillRefused(functional("manifest.format", "its first part holds '---' or '...' within", "SKILL.md"))


def _check_name(name: str, taken: Collection[str]) -> list[Finding]:
    if wrong := find_name_problem(name):
        return [functional("manifest.name", wrong, "SKILL.md")]
    if name in taken:
        return [functional("manifest.taken", f"there is a skill {name} already; change that one instead", "SKILL.md")]
    return []


def _check_description(description: str) -> list[Finding]:
    if _MARKUP.search(description):
        return [
            security("manifest.markup", "its description holds markup that could end where it is shown", "SKILL.md")
        ]
    return []


def _entry(tree: Tree, paths: set[str], module: str) -> tuple[str, Signature]:
    candidates = [path for path in ("scripts/main.py", f"scripts/{module}.py") if path in paths]
    if not candidates:
        raise SkillRefused(functional("manifest.entry", f"there is no scripts/main.py and no scripts/{module}.py"))
    entry = candidates[0]
    try:
        parsed = ast.parse(tree.read(entry))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
        raise SkillRefused(
            functional("manifest.syntax", f"it is no Python: {type(error).__name__}", entry, line)
        ) from error
    signature = read_signature(parsed, ("run", module))
    if signature is None:
        raise SkillRefused(functional("manifest.entry", f"it has no function run and no function {module}", entry))
    return entry, signature


def _list_ignored(fields: Mapping[str, Any], metadata: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    if fields.get("allowed-tools"):
        found.append(
            advice("manifest.allowed-tools", "a skill does not permit itself tools; this is ignored", "SKILL.md")
        )
    found += [
        advice("manifest.claim", f"{name} is not for a skill to say; it is ignored", "SKILL.md")
        for name in metadata
        if name.lower() in _CLAIMS
    ]
    return found
