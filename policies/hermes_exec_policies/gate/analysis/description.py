"""The description of a skill: its name and text in SKILL.md, and the files and the function that it promises."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate.analysis.layout import check_characters
from hermes_exec_policies.gate.analysis.signature import Signature, read_signature
from hermes_exec_policies.gate.skill_names import find_guide_name_problem, find_imitated, find_name_problem
from hermes_exec_policies.gate.tree import Tree
from hermes_exec_policies.gate.verdict import Finding, Kind, SkillRefused, advice, functional

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_MARKUP = re.compile(r"</\s*\w|<\s*(skill|system|assistant|user|tool|script|iframe|img)\b|<!--|\]\]>", re.IGNORECASE)
_MENTIONED = re.compile(r"(?<![\w./-])(?:scripts|references|templates|assets)/[A-Za-z0-9_./-]*[A-Za-z0-9_]")
_CLAIMS = ("created-by", "created_by", "verified", "pinned", "trusted", "signed", "official")
_OTHER_SCRIPT = re.compile(r"scripts/.*\.(js|mjs|cjs|ts|rb|pl|php|lua|ps1|bat|cmd|go|r)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FunctionDescription:
    """The description of a skill with a function."""

    name: str
    description: str
    license: str
    metadata: dict[str, str]
    findings: list[Finding]
    """About the name, the characters and the description."""
    absent: list[Finding]
    """About files that SKILL.md names and the skill does not have."""
    advice: list[Finding]
    """About what has no effect."""
    entry: str = ""
    """The path of the script with the function."""
    signature: Signature | None = None
    unusable: list[Finding] = field(default_factory=list[Finding])
    """Why there is no signature; empty if other findings came first."""


def describe_function(
    files: dict[str, Any], fields: dict[str, Any], body: str, taken: Collection[str]
) -> FunctionDescription:
    """Return what the front matter's ``fields`` and the ``body`` of SKILL.md say of a skill with a function.

    ``files`` are its tree's, and ``taken`` the names of other skills.
    """
    tree = Tree.from_facts(files)
    paths = {each.path for each in tree.files}
    name = str(fields["name"])
    found = FunctionDescription(
        name=name, description=str(fields["description"]).strip(), license=str(fields.get("license") or ""),
        metadata=fields.get("metadata") or {}, advice=_list_ignored(fields),
        findings=[
            *_check_function_name(name, taken), *_check_fields(fields), *_check_description(str(fields["description"])),
        ],
        absent=[
            functional(
                "manifest.unlisted",
                f"SKILL.md names {path}, which does not exist; add the file, or remove the name",
                "SKILL.md",
            )
            for path in _find_absent(body, paths)
        ],
    )  # fmt: skip
    if found.findings or found.absent:
        return found
    try:
        entry, signature = _find_entry(tree, paths, name.replace("-", "_"))
    except SkillRefused as error:
        return replace(found, unusable=[*error.findings])
    return replace(found, entry=entry, signature=signature)


def describe_guide(
    fields: dict[str, Any],
    body: str,
    ignored: Collection[str],
    long: Mapping[str, int],
    paths: list[str],
    taken: Collection[str],
) -> tuple[str, str, list[Finding]]:
    """Return the name and the description of a guide, and the findings about what its SKILL.md says."""
    name, description = str(fields["name"]).strip(), str(fields["description"])
    found = [*_check_guide_name(name, taken), *_check_fields(fields), *_list_ignored(fields)]
    found += [
        advice("manifest.field", f"the format has no field {each[:80]!a}; it is kept and has no effect", "SKILL.md")
        for each in ignored
    ]
    found += [
        advice(
            "manifest.long", f"its {each} is longer than the format's {limit} characters; others refuse it", "SKILL.md"
        )
        for each, limit in long.items()
    ]
    found += [replace(each, kind=Kind.ADVICE) for each in _check_description(description)]
    found += [
        advice("manifest.unlisted", f"it names {path}, which does not exist", "SKILL.md")
        for path in _find_absent(body, paths)
    ]
    found += [
        advice("manifest.interpreter", "it runs only after a person grants its interpreter", path)
        for path in sorted(paths)
        if _OTHER_SCRIPT.fullmatch(path)
    ]
    return name, description.strip(), found


def _check_function_name(name: str, taken: Collection[str]) -> list[Finding]:
    if wrong := find_name_problem(name):
        return [functional("manifest.name", wrong, "SKILL.md")]
    if name in taken:
        return [functional("manifest.taken", f"there is a skill {name} already; change that one instead", "SKILL.md")]
    return []


def _check_guide_name(name: str, taken: Collection[str]) -> list[Finding]:
    if wrong := find_guide_name_problem(name):
        return [functional("manifest.name", f"{name[:80]!a} cannot be its name: {wrong}", "SKILL.md")]
    if name in taken:
        return [
            functional(
                "manifest.taken", f"there is a skill {name} already: change that one, or rename this", "SKILL.md"
            )
        ]
    if other := find_imitated(name, taken):
        return [advice("manifest.imitates", f"its name is easily taken for that of the skill {other}", "SKILL.md")]
    return []


def _check_fields(fields: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the characters of the parsed fields, since YAML can write any as an escape."""
    found = [wrong for text in _texts(fields) for wrong in check_characters("SKILL.md", text)]
    return [replace(each, line=0) for each in found]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of the front matter as parsed."""
    if isinstance(value, dict):
        for pair in value.items():  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(list(pair))  # pyright: ignore[reportUnknownArgumentType]  YAML
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(each)
    else:
        yield str(value)


def _check_description(description: str) -> list[Finding]:
    """Return a finding if a description has markup that could end the list in which it is shown."""
    if _MARKUP.search(description):
        return [
            functional("manifest.markup", "its description holds markup that could end where it is shown", "SKILL.md")
        ]
    return []


def _find_absent(body: str, paths: Collection[str]) -> list[str]:
    """Return the files that a text mentions and the skill does not have."""
    mentioned = sorted(set(_MENTIONED.findall(body)))
    return [path for path in mentioned if path not in paths and not any(each.startswith(path + "/") for each in paths)]


def _find_entry(tree: Tree, paths: set[str], module: str) -> tuple[str, Signature]:
    candidates = [path for path in ("scripts/main.py", f"scripts/{module}.py") if path in paths]
    if not candidates:
        raise SkillRefused(
            functional(
                "manifest.entry", f"there is no scripts/main.py and no scripts/{module}.py; add one with a function run"
            )
        )
    entry = candidates[0]
    try:
        parsed = ast.parse(tree.read(entry))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
        raise SkillRefused(
            functional("manifest.syntax", f"it is not Python: {type(error).__name__}", entry, line)
        ) from error
    signature = read_signature(parsed, ("run", module))
    if signature is None:
        raise SkillRefused(
            functional(
                "manifest.entry", f"it has no function run and no function {module}; define one at its top level", entry
            )
        )
    return entry, signature


def _list_ignored(fields: Mapping[str, Any]) -> list[Finding]:
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
