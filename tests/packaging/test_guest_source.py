"""The guest's source is sent to interpreters as old as 3.6, so it is held to what those have."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUEST = Path(__file__).parents[2] / "hermes_exec" / "guest"
MODULES = sorted(GUEST.rglob("*.py"))
YOUNGER_THAN_3_6 = {
    "contextvars",
    "dataclasses",
    "graphlib",
    "tomllib",
    "zoneinfo",
    "annotationlib",
    "compression",
}
TOO_SLOW_TO_IMPORT = {"asyncio", "typing"}

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(GUEST).as_posix())


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 6))


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def run_time_imports(tree: ast.Module) -> set[str]:
    """What running the module may import, wherever that stands; a leading dot says relative."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.stmt) and is_for_type_checkers(node):
            assert isinstance(node, ast.If)
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


def pythons_3_6() -> list[str]:
    """Interpreters that really are 3.6: the one named by HERMES_EXEC_PYTHON36, one on the PATH, pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [os.environ.get("HERMES_EXEC_PYTHON36"), shutil.which("python3.6")]
    candidates += [str(path) for path in pyenv.glob("versions/3.6.*/bin/python3.6")]
    probe = "import sys; sys.exit(sys.version_info[:2] != (3, 6))"
    return [
        python
        for python in candidates
        if python and subprocess.run([python, "-I", "-c", probe], check=False, capture_output=True).returncode == 0
    ]


def test_there_is_a_guest() -> None:
    assert MODULES


@each_module
def test_guest_module_has_only_the_grammar_of_3_6(path: Path) -> None:
    assert isinstance(parsed(path), ast.Module)


@each_module
def test_guest_module_imports_only_the_standard_library_of_3_6_and_its_own_package(path: Path) -> None:
    depth = len(path.relative_to(GUEST).parts)
    for name in run_time_imports(parsed(path)):
        dots = len(name) - len(name.lstrip("."))
        if dots:
            assert dots <= depth, f"{name} reaches out of the guest"
            continue
        top = name.partition(".")[0]
        assert top in sys.stdlib_module_names, f"{name} is not in the standard library"
        assert top not in YOUNGER_THAN_3_6, f"{name} is younger than 3.6"
        assert top != "__future__", "no feature that 3.6 lacks can be asked for there"
        assert name not in {"importlib.metadata", "importlib.resources"}, f"{name} is younger than 3.6"


@each_module
def test_guest_module_imports_nothing_that_is_slow(path: Path) -> None:
    slow = {name for name in run_time_imports(parsed(path)) if name.partition(".")[0] in TOO_SLOW_TO_IMPORT}
    assert not slow


def test_guest_compiles_on_a_real_3_6(tmp_path: Path) -> None:
    pythons = pythons_3_6()
    if not pythons:
        pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
    code = (
        "import sys\n"
        "for path in sys.argv[1:]:\n"
        "    with open(path, encoding='utf-8') as source:\n"
        "        compile(source.read(), path, 'exec')\n"
    )
    argv = [pythons[0], "-I", "-c", code, *map(str, MODULES)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
