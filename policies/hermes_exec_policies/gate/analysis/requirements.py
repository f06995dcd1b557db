"""The packages that a skill requires, by name, version and marker alone, in any of the files that may list them."""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.tree import Tree
from hermes_exec_policies.gate.verdict import Finding, functional

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.requirements import Requirement


_MOST = 30
_LIKE = 0.85
_LONG = 5
_OURS = re.compile(r"hermes-?exec\b")
_PATH = re.compile(r"/|\.(py|sh|js)$")
"""A word of ``metadata.scripts`` that names a file instead of a package."""
# As specified in PEP 723.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def find_requirements(files: dict[str, Any], named: list[str]) -> tuple[list[str], list[Finding]]:
    """Return the requirements of a skill as text, and findings about them, for another process."""
    found, wrong = collect_requirements(Tree.from_facts(files), named)
    return list(map(str, found)), wrong


def collect_requirements(tree: Tree, named: Iterable[str]) -> tuple[list[Requirement], list[Finding]]:
    """Return the requirements in SKILL.md (``named``), requirements.txt and scripts, and findings about them."""
    wrong: list[Finding] = []
    scripts = [each.path for each in tree.files if each.path.startswith("scripts/") and each.path.endswith(".py")]
    lines = _lines(tree, named)
    for path in scripts:
        listed, others = _inline(tree.read(path).decode(), path, wrong)
        if others:
            said = "its block says more than dependencies and requires-python"
            wrong.append(functional("dependencies.block", said, path))
        lines += [(path, each) for each in listed]
    found = _parse(lines, wrong)
    if found and not _foreign_imports(tree):
        said = f"it asks for packages ({', '.join(sorted(map(str, found)))[:200]}) and imports none"
        wrong.append(functional("dependencies.unused", said))
    return found, wrong


def find_script_requirements(
    files: dict[str, Any], script: str, metadata: dict[str, str]
) -> tuple[list[str], list[Finding]]:
    """Return the requirements of one script of a guide as text, and findings about them, for another process."""
    found, wrong = collect_script_requirements(Tree.from_facts(files), script, metadata)
    return list(map(str, found)), wrong


def collect_script_requirements(
    tree: Tree, script: str, metadata: Mapping[str, str]
) -> tuple[list[Requirement], list[Finding]]:
    """Return the requirements of one script of a guide, and findings about them.

    They are those in the script's own block of PEP 723, whose other settings have no effect; without a block, those in
    ``needs-packages`` and ``scripts`` of the metadata and in requirements.txt, and the well-known packages that it
    imports without declaring them.
    """
    wrong: list[Finding] = []
    text = tree.read(script).decode("utf-8", "replace")
    block, _ = _inline(text, script, wrong)
    if block:
        return _parse([(script, each) for each in block], wrong), wrong
    named = [*metadata.get("needs-packages", "").split(), *metadata.get("scripts", "").split()]
    lines = _lines(tree, [each for each in named if not _PATH.search(each)], near=script.rpartition("/")[0])
    found = _parse(lines, wrong)
    if script.endswith(".py"):
        known = {_canonical(each.name) for each in found}
        found += _parse([(script, each) for each in _infer_packages(tree, script) if each not in known], wrong)
    return found, wrong


def _infer_packages(tree: Tree, script: str) -> list[str]:
    """Return the well-known packages that a script, or a module of the skill that it imports, imports."""
    paths = {each.path for each in tree.files if each.path.endswith(".py")}
    texts: dict[str, str] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        texts[path] = tree.read(path).decode("utf-8", "replace")
        try:
            names = find_imports({"": texts[path]})  # the skill's own modules, too
        except (SyntaxError, ValueError, RecursionError):
            del texts[path]  # it is for another Python, or is none; the interpreter says so
            continue
        here = path.rpartition("/")[0]
        roots = {script.rpartition("/")[0], here, ""}
        modules = {posixpath.join(root, *name.split(".")) for root in roots for name in names}
        waiting += [
            path for path in paths if any(path == f"{each}.py" or path.startswith(f"{each}/") for each in modules)
        ]
    aliases: dict[str, str] = _table()["modules"]
    imported = {name.partition(".")[0] for name in (find_imports(texts) if texts else ())}
    packages = {aliases.get(name) or _canonical(name) for name in imported - sys.stdlib_module_names}
    return sorted(packages & {*_table()["popular"]})


def _canonical(name: str) -> str:
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def _parse(lines: Iterable[tuple[str, str]], wrong: list[Finding]) -> list[Requirement]:
    found: dict[str, Requirement] = {}
    for path, line in lines:
        requirement = _read(line, path, wrong)
        if requirement is None:
            continue
        wrong += _check_name(requirement, path)
        found[str(requirement)] = requirement
    if len(found) > _MOST:
        wrong.append(functional("dependencies.many", f"there are more than {_MOST} packages; name fewer"))
    return list(found.values())


def _foreign_imports(tree: Tree) -> list[str]:
    """Return the imported modules that are neither in the standard library nor in the skill."""
    texts = {each.path: tree.read(each.path).decode() for each in tree.files if each.path.endswith(".py")}
    names = {name.partition(".")[0] for name in find_imports(texts)}
    return sorted(names - sys.stdlib_module_names - {"pytest", "_pytest"})


def find_known_bad(lock: str) -> list[Finding]:
    """Return findings about resolved versions, ``name==version …`` a line, dependencies included."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins = [Requirement(line.partition(" ")[0]) for line in lock.splitlines() if "==" in line.partition(" ")[0]]
    return [found for pin in pins if (found := _check_harmful(pin, str(canonicalize_name(pin.name)), ""))]


def _lines(tree: Tree, named: Iterable[str], near: str = "") -> list[tuple[str, str]]:
    """Return each requirement of the whole skill as text, with the file that has it; ``near`` is a folder to search."""
    lines = [("SKILL.md", each) for each in named]
    for file in tree.files:
        if file.path in {"requirements.txt", f"{near}/requirements.txt"}:
            text = tree.read(file.path).decode("utf-8", "replace")
            stripped = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", " ").splitlines()]
            lines += [(file.path, line) for line in stripped if line]
    return lines


def _inline(text: str, path: str, wrong: list[Finding]) -> tuple[list[str], bool]:
    """Return the requirements in a script's block, and whether the block has something else."""
    blocks = [hit for hit in _BLOCK.finditer(text) if hit["type"] == "script"]
    if not blocks:
        return [], False
    content = "\n".join(line[2:] for line in blocks[0]["content"].splitlines())
    try:
        told: dict[str, Any] = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        wrong.append(functional("dependencies.block", f"its block of dependencies is not TOML: {error}", path))
        return [], False
    listed: Any = told.get("dependencies", [])
    others = len(blocks) > 1 or bool(set(told) - {"dependencies", "requires-python"}) or not isinstance(listed, list)
    return ([str(each) for each in listed] if isinstance(listed, list) else []), others  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  TOML


def _read(line: str, path: str, wrong: list[Finding]) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement

    if line.startswith("-"):
        said = f"an option for the installing program: {line}; name packages and versions alone"
        wrong.append(functional("dependencies.option", said, path))
        return None
    if "://" in line or "@" in line or line.startswith((".", "/", "~")) or "\\" in line:
        said = f"a package by its address: {line}; write its name, as in pandas>=2"
        wrong.append(functional("dependencies.source", said, path))
        return None
    try:
        return Requirement(line)
    except InvalidRequirement as error:
        wrong.append(functional("dependencies.syntax", f"{line!r}: {str(error).splitlines()[0]}", path))
        return None


def _check_name(requirement: Requirement, path: str) -> list[Finding]:
    """Return findings about a name, or about a popular one that it could be mistaken for."""
    from packaging.utils import canonicalize_name

    name = str(canonicalize_name(requirement.name))
    if name.replace("-", "_") in sys.stdlib_module_names:
        said = f"{name} is part of Python; no package of that name is needed"
        return [functional("dependencies.standard", said, path)]
    if harmful := _check_harmful(requirement, name, path):
        return [harmful]
    popular: list[str] = _table()["popular"]
    if name not in popular and (near := _find_similar(name, popular)):
        said = f"{name} looks like {near[0]} and is another one; write {near[0]} if you mean that"
        return [functional("dependencies.look-alike", said, path)]
    return []


def _find_similar(name: str, popular: list[str]) -> list[str]:
    """Return the popular names that a name could be mistaken for: similar ones, or ones that differ in one letter."""
    one = [each for each in popular if len(each) == len(name) >= _LONG and sum(map(str.__ne__, each, name)) == 1]
    return one or difflib.get_close_matches(name, popular, 1, _LIKE)


def _check_harmful(requirement: Requirement, name: str, path: str) -> Finding | None:
    from packaging.specifiers import SpecifierSet

    if _OURS.match(name):
        return functional("dependencies.ours", f"{name} is what runs skills, and no skill needs it: leave it out", path)
    bad: dict[str, str] = _table()["bad"]
    if name not in bad:
        return None
    exact = [each.version.rstrip(".*") for each in requirement.specifier if each.operator in {"==", "==="}]
    if bad[name] and not any(SpecifierSet(bad[name]).contains(version) for version in exact):
        return None
    said = f"{requirement} is known to be harmful or to have a known hole; use another package or version"
    return functional("dependencies.known-bad", said, path)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("known_packages.toml").read_text("utf-8"))


def find_imports(texts: dict[str, str]) -> list[str]:
    """Return the full names of the modules that files import, except modules in these files; ``texts`` is by path."""
    own = {part.removesuffix(".py") for path in texts for part in path.split("/")}
    found: set[str] = set()
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    return sorted(name for name in found if name.partition(".")[0] not in own)
