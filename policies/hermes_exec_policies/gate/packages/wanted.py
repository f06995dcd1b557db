"""Which packages a skill asks for: by name, version and marker alone, wherever it says so."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.verdict import Finding, functional, security

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree

_MOST = 30
_LIKE = 0.85
# As PEP 723 has it.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def wanted(tree: Tree, manifest: Manifest) -> tuple[list[Requirement], list[Finding]]:
    """The packages that are asked for in SKILL.md, in requirements.txt and in scripts, and what is wrong with them."""
    found: dict[str, Requirement] = {}
    wrong: list[Finding] = []
    for path, line, exact in _lines(tree, manifest, wrong):
        requirement = _read(line, path, wrong)
        if requirement is None:
            continue
        if exact and not _is_exact(requirement):
            wrong.append(
                functional(
                    "dependencies.pin", f"{requirement.name} needs one exact version here, as in name==1.2", path
                )
            )
        wrong += _known(requirement, path)
        found[str(requirement)] = requirement
    if len(found) > _MOST:
        wrong.append(functional("dependencies.many", f"there are more than {_MOST} packages"))
    return list(found.values()), wrong


def _lines(tree: Tree, manifest: Manifest, wrong: list[Finding]) -> list[tuple[str, str, bool]]:
    """Where each line stands, the line, and whether it must name one version."""
    lines = [("SKILL.md", each, False) for each in manifest.needs.packages]
    for file in tree.files:
        if file.path == "requirements.txt":
            text = tree.read(file.path).decode()
            stripped = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", " ").splitlines()]
            lines += [(file.path, line, True) for line in stripped if line]
        elif file.path.startswith("scripts/") and file.path.endswith(".py"):
            lines += [(file.path, each, False) for each in _inline(tree.read(file.path).decode(), file.path, wrong)]
    return lines


def _inline(text: str, path: str, wrong: list[Finding]) -> list[str]:
    blocks = [hit for hit in _BLOCK.finditer(text) if hit["type"] == "script"]
    if not blocks:
        return []
    content = "\n".join(line[2:] for line in blocks[0]["content"].splitlines())
    try:
        told: dict[str, Any] = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        wrong.append(functional("dependencies.block", f"its block of dependencies is no TOML: {error}", path))
        return []
    listed: Any = told.get("dependencies", [])
    if len(blocks) > 1 or set(told) - {"dependencies", "requires-python"} or not isinstance(listed, list):
        wrong.append(security("dependencies.block", "its block says more than dependencies and requires-python", path))
        return []
    return [str(each) for each in listed]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  TOML


def _read(line: str, path: str, wrong: list[Finding]) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement

    if line.startswith("-"):
        wrong.append(security("dependencies.option", f"an option for the one who installs: {line}", path))
        return None
    if "://" in line or "@" in line or line.startswith((".", "/", "~")) or "\\" in line:
        wrong.append(security("dependencies.source", f"a package by its place instead of its name: {line}", path))
        return None
    try:
        return Requirement(line)
    except InvalidRequirement as error:
        wrong.append(functional("dependencies.syntax", f"{line!r}: {str(error).splitlines()[0]}", path))
        return None


def _is_exact(requirement: Requirement) -> bool:
    return any(each.operator in {"==", "==="} and not each.version.endswith("*") for each in requirement.specifier)


def _known(requirement: Requirement, path: str) -> list[Finding]:
    """What is known of a name, or of one that it could be mistaken for."""
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name

    name = str(canonicalize_name(requirement.name))
    if name.replace("-", "_") in sys.stdlib_module_names:
        return [
            functional("dependencies.standard", f"{name} is part of Python; no package of that name is needed", path)
        ]
    known = _table()
    bad: dict[str, str] = known["bad"]
    if name in bad:
        refused = SpecifierSet(bad[name])
        exact = [each.version for each in requirement.specifier if each.operator == "=="]
        if not bad[name] or any(refused.contains(version.rstrip(".*")) for version in exact):
            return [security("dependencies.known-bad", f"{requirement} is known to be harmful or broken open", path)]
    popular: list[str] = known["popular"]
    if name not in popular and (near := difflib.get_close_matches(name, popular, 1, _LIKE)):
        return [functional("dependencies.look-alike", f"{name} looks like {near[0]} and is another one", path)]
    return []


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))
