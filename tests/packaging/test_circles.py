"""No modules import each other in a circle, but for those that pyproject.toml names with their reason."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "hermes_exec": ROOT,
    "hermes_exec_agent": ROOT / "agent",
    "hermes_exec_backends": ROOT / "backends",
    "hermes_exec_policies": ROOT / "policies",
}
KINDS = {"import": ("import",), "typing": ("import", "typing"), "call": ("import", "call")}


def find_modules() -> dict[str, Path]:
    """Return the file of each module of the product."""
    found: dict[str, Path] = {}
    for package, folder in FOLDERS.items():
        for path in (folder / package).rglob("*.py"):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def find_imports(tree: ast.AST, kind: str = "import") -> Iterator[tuple[str, str]]:
    """Yield the kind of each import of a module, and what it imports."""
    for node in ast.iter_child_nodes(tree):
        inner = kind
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inner = "typing"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and kind == "import":
            inner = "call"
        if isinstance(node, ast.Import):
            yield from ((inner, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((inner, f"{node.module}.{each.name}") for each in node.names)
        yield from find_imports(node, inner)


def find_circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of modules of which each reaches each other."""
    left = dict(graph)
    while leaves := {each for each, others in left.items() if not others & left.keys()}:
        left = {each: others for each, others in left.items() if each not in leaves}
    reached = {each: follow(left, each) for each in left}
    groups = {frozenset(other for other in reached[each] if each in reached.get(other, ())) for each in left}
    return {group for group in groups if group}


def follow(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return what a module imports, at first hand or through others."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        ahead += (new := graph.get(ahead.pop(), set()) - seen)
        seen |= new
    return seen


@pytest.fixture(scope="module")
def imports() -> dict[str, set[tuple[str, str]]]:
    """The imports of the product's modules by each module: their kind and the other module."""
    modules = find_modules()
    found: dict[str, set[tuple[str, str]]] = {}
    for name, path in modules.items():
        of_one = find_imports(ast.parse(path.read_bytes()))
        known = ((kind, each if each in modules else each.rpartition(".")[0]) for kind, each in of_one)
        found[name] = {(kind, each) for kind, each in known if each in modules and each != name}
    return found


@pytest.mark.parametrize("when", KINDS)
def test_only_named_modules_import_each_other(when: str, imports: dict[str, set[tuple[str, str]]]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = settings["tool"]["hermes_dev"]["circles"]
    assert all(each["reason"] for each in named)
    graph = {name: {other for kind, other in each if kind in KINDS[when]} for name, each in imports.items()}
    assert find_circles(graph) == {frozenset(each["modules"]) for each in named if each["when"] == when}
