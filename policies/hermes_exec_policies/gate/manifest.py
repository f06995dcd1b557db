"""Read SKILL.md in the format of agentskills.io, and validate it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate import layout
from hermes_exec_policies.gate.child_process import Unanswered, ask
from hermes_exec_policies.gate.grants import Needs, parse_needs
from hermes_exec_policies.gate.secret_checks import find_secrets
from hermes_exec_policies.gate.skill_names import find_name_problem, module_name
from hermes_exec_policies.gate.source import Signature, read_signature
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, advice, functional

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hermes_exec_policies.gate.tree import Tree

_MAX_TEXT = 256 << 10
_MAX_FRONT = 16 << 10
_MAX_FRONT_LINES = 200
_MAX_INDENT = 16
_MAX_BRACKETS = 128
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
    found = [*layout.check_layout(tree), *find_secrets(tree)]
    paths = {each.path for each in tree.files}
    if "SKILL.md" not in paths:
        raise SkillRefused(*found, functional("manifest.missing", "there is no SKILL.md"))
    if found:
        raise SkillRefused(*found)
    front = await read_front_matter(tree.read("SKILL.md").decode(), folder)
    fields, body = front.fields, front.body
    name = str(fields["name"])
    metadata: dict[str, str] = fields.get("metadata") or {}
    found += _check_name(name, taken)
    found += front.check_characters()
    found += check_description(str(fields["description"]))
    needs, wrong = parse_needs(metadata)
    found += wrong
    found += [
        functional("manifest.unlisted", f"SKILL.md speaks of {path}, which is not there", "SKILL.md")
        for path in find_absent(body, paths)
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
    return manifest, list_ignored(fields)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The first part of SKILL.md as the format's reference library reads it."""

    fields: dict[str, Any]
    body: str
    ignored: tuple[str, ...]
    """Fields that the format does not have."""
    long: Mapping[str, int]
    """Fields that are longer than the format allows, and their limits."""

    def check_characters(self) -> list[Finding]:
        """Return findings about the characters of the parsed fields, since YAML can write any as an escape."""
        found = [wrong for text in _texts(self.fields) for wrong in layout.check_characters("SKILL.md", text)]
        return [replace(each, line=0) for each in found]


async def read_front_matter(text: str, folder: str, *, lenient: bool = False) -> FrontMatter:
    """Parse and validate the front matter of SKILL.md.

    Args:
        text: the whole file.
        folder: the name of its folder, which must be the skill's; not compared if empty.
        lenient: accept fields that the format does not have, and values of any YAML style.

    Raises:
        SkillRefused: it is malformed; the findings name every error.
    """
    text = text.replace("\r\n", "\n")
    _check_bounds(text)
    question = {"text": text, "folder": folder, "lenient": lenient}
    try:
        read = await ask("hermes_exec_policies.gate.frontmatter", question, cpu_s=_CPU_S)
    except Unanswered as error:
        why = f"its first part cannot be read: {error.what}"
        raise SkillRefused(functional("manifest.unreadable", why, "SKILL.md")) from error
    if read["errors"]:
        raise SkillRefused(*(functional("manifest.format", each, "SKILL.md", read["line"]) for each in read["errors"]))
    return FrontMatter(read["fields"], read["body"], tuple(read["ignored"]), read["long"])


def find_absent(body: str, paths: Collection[str]) -> list[str]:
    """Return the files that a text mentions and the skill does not have."""
    mentioned = sorted(set(_MENTIONED.findall(body)))
    return [path for path in mentioned if path not in paths and not any(each.startswith(path + "/") for each in paths)]


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
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if lines[0].rstrip() != "---" or not end:
        wrong = "it does not begin with a part between lines of '---': begin with ---, name: …, description: …, ---"
        raise SkillRefused(functional("manifest.format", wrong, "SKILL.md"))
    front = lines[1:end]
    joined = "\n".join(front)
    if len(joined) > _MAX_FRONT or len(front) > _MAX_FRONT_LINES:
        raise SkillRefused(
            functional("manifest.size", f"its first part is longer than {_MAX_FRONT} characters", "SKILL.md")
        )
    indent = max((len(line) - len(line.lstrip(" ")) for line in front), default=0)
    if indent > _MAX_INDENT or joined.count("[") + joined.count("{") > _MAX_BRACKETS or _NESTED.search(joined):
        raise SkillRefused(functional("manifest.deep", "its first part is nested too deeply", "SKILL.md"))
    for number, line in enumerate(front, 2):
        if "---" in line or line.rstrip() == "...":
            wrong = "its first part holds '---' or '...' within, where some readers end it: write a single dash"
            raise SkillRefused(functional("manifest.format", wrong, "SKILL.md", number))


def _check_name(name: str, taken: Collection[str]) -> list[Finding]:
    if wrong := find_name_problem(name):
        return [functional("manifest.name", wrong, "SKILL.md")]
    if name in taken:
        return [functional("manifest.taken", f"there is a skill {name} already; change that one instead", "SKILL.md")]
    return []


def check_description(description: str) -> list[Finding]:
    """Return a finding if a description has markup that could end the list in which it is shown."""
    if _MARKUP.search(description):
        return [
            functional("manifest.markup", "its description holds markup that could end where it is shown", "SKILL.md")
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


def list_ignored(fields: Mapping[str, Any]) -> list[Finding]:
    """Return advice about claims of a skill that have no effect."""
    found: list[Finding] = []
    if fields.get("allowed-tools"):
        found.append(
            advice("manifest.allowed-tools", "a skill does not permit itself tools; this is ignored", "SKILL.md")
        )
    metadata = fields.get("metadata")
    found += [
        advice("manifest.claim", f"{name} is not for a skill to say; it is ignored", "SKILL.md")
        for name in (cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {})
        if name.lower() in _CLAIMS
    ]
    return found
