"""What is sent to a place is whole, and in the order of its imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hermes_exec.link import bootstrap

GUEST = Path(bootstrap.__file__).parent.parent / "guest"
CORE: tuple[str, ...] = bootstrap.CORE
NOT_SENT_AS_MODULES = {"__init__", "loader", "bridge"}


def imports(module: str) -> set[str]:
    """The guest's modules that a module imports when it is run."""
    names: set[str] = set()
    for node in ast.parse((GUEST / f"{module}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module} if node.module else {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("part", ["", *bootstrap.PARTS])
def test_each_module_comes_after_those_that_it_imports(part: str) -> None:
    there = set(CORE) if part else set[str]()
    for module in bootstrap.PARTS[part] if part else CORE:
        assert imports(module) <= there, f"{module} needs {imports(module) - there} before it"
        there.add(module)


def test_every_module_of_the_guest_is_sent() -> None:
    sent = set(CORE).union(*bootstrap.PARTS.values())
    assert sent == {path.stem for path in GUEST.glob("*.py")} - NOT_SENT_AS_MODULES


def test_no_module_is_sent_twice() -> None:
    modules = [*CORE, *(module for part in bootstrap.PARTS.values() for module in part)]
    assert len(modules) == len(set(modules))


@pytest.mark.parametrize("name", [*CORE, *(module for part in bootstrap.PARTS.values() for module in part)])
def test_what_is_left_out_on_the_way_to_a_far_place_is_not_code(name: str) -> None:
    source = (GUEST / f"{name}.py").read_bytes()
    assert code_of(bootstrap.lean(source)) == code_of(source)


def code_of(source: bytes) -> list[tuple[str, int, object]]:
    """What is in a module but its comments and its texts that stand for themselves, with the lines."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (type(node).__name__, getattr(node, "lineno", 0), getattr(node, "value", getattr(node, "id", None)))
        if isinstance(node, (ast.Constant, ast.Name))
        else (type(node).__name__, getattr(node, "lineno", 0), None)
        for node in ast.walk(tree)
        if id(node) not in texts
    ]
