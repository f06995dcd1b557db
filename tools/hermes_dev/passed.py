"""What each checker has passed in this checkout, so that a plain ``./dev test`` checks only what may differ since.

A checker reads the sources, its configuration, the stubs and the installed packages. While none of these differs, it
would say the same again. pyright, which has no cache, is given the files that a change may affect: those that differ,
and, where what other modules can see of them differs, all that import these, by any number of steps. In a new checkout,
where it has passed nothing yet, what is committed counts as passed, for CI checks each commit as a whole.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import zlib
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev.place import CACHE, LOCK, ROOT, SOURCES, venv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FOLDER = CACHE / "passed"
_ROOTS = ("backends", "policies", "agent", "tools")
"""The folders that modules are imported from, besides the checkout itself."""
_FROM = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#]*)", re.MULTILINE)
_NAME = re.compile(r"[.\w]+")


@dataclass(frozen=True)
class Snapshot:
    """All that a checker reads, at one moment."""

    settings: str
    """A digest of the configuration, the stubs and the names and versions of what is installed."""
    sources: Mapping[str, str]
    """The text of each source, by its path below the checkout."""


def take_snapshot(root: Path = ROOT) -> Snapshot:
    """Read what a checker would read now."""
    settings = hashlib.sha256(str(venv()).encode())
    for path in (root / "pyproject.toml", root / LOCK.name, *sorted((root / "typings").rglob("*.pyi"))):
        settings.update(f"\n{path}\n".encode() + path.read_bytes())
    for folder in sorted(venv().glob("lib/python*/site-packages")):
        settings.update("\n".join(sorted(path.name for path in folder.iterdir())).encode())
    sources: dict[str, str] = {}
    for path in (path for name in SOURCES for path in (root / name).rglob("*.py")):
        with suppress(FileNotFoundError):  # removed since it was listed
            sources[str(path.relative_to(root))] = path.read_text(encoding="utf-8", errors="replace")
    return Snapshot(settings.hexdigest(), sources)


def read_passed(checker: str, folder: Path = _FOLDER) -> Snapshot | None:
    """Return what the checker has passed last, or None."""
    try:
        kept = json.loads(zlib.decompress((folder / checker).read_bytes()))
        return Snapshot(kept["settings"], kept["sources"])
    except (OSError, ValueError, KeyError, TypeError, zlib.error):
        return None


def write_passed(checker: str, snapshot: Snapshot, folder: Path = _FOLDER) -> None:
    """Keep what the checker has passed."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{checker}.new"
    kept = json.dumps({"settings": snapshot.settings, "sources": snapshot.sources})
    written.write_bytes(zlib.compress(kept.encode(), level=1))
    written.rename(folder / checker)


def read_committed(now: Snapshot, root: Path = ROOT) -> Snapshot | None:
    """Return the snapshot with the sources of the last commit.

    Returns None without a commit, or where the settings differ from it.
    """
    changed = _ask_git(root, "diff", "--name-only", "--relative", "--no-renames", "-z", "HEAD")
    new = _ask_git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if changed is None or new is None:
        return None
    paths = {path for path in (changed + new).split("\0") if path}
    if any(path in {"pyproject.toml", LOCK.name} or path.startswith("typings/") for path in paths):
        return None
    committed = {path: _ask_git(root, "show", f"HEAD:./{path}") for path in paths if path.endswith(".py")}
    sources = {path: committed.get(path, text) for path, text in {**dict.fromkeys(committed), **now.sources}.items()}
    return Snapshot(now.settings, {path: text for path, text in sources.items() if text is not None})


def _ask_git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True)
    except OSError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def find_affected(passed: Snapshot | None, now: Snapshot) -> frozenset[str]:
    """Return the sources of which a checker of types may say something else than of those that it passed."""
    if passed is None or passed.settings != now.settings:
        return frozenset(now.sources)
    paths = passed.sources.keys() | now.sources.keys()
    changed = {path for path in paths if passed.sources.get(path) != now.sources.get(path)}
    visible = [path for path in changed if _is_visible(passed.sources.get(path), now.sources.get(path))]
    return frozenset((changed | _find_importers(visible, now.sources)) & now.sources.keys())


def _find_importers(paths: list[str], sources: Mapping[str, str]) -> set[str]:
    """Return the sources that import one of these, by any number of steps."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in sources.items():
        for name in _find_imports(path, text):
            importers[name].add(path)
    found: set[str] = set()
    left = list(paths)
    while left:
        new = importers[_name_module(left.pop())] - found
        found |= new
        left.extend(new)
    return found


def _find_imports(path: str, text: str) -> Iterator[str]:
    """Yield the names of all modules that a source may import, their packages and modules in its own folder included.

    What only looks like an import, in a string for example, is taken for one.
    """
    package = _name_module(path) if path.endswith("/__init__.py") else _name_module(path).rpartition(".")[0]
    asked: set[str] = set()
    for module, names in _FROM.findall(text):
        base = module
        if module.startswith("."):
            steps = len(module) - len(module.lstrip("."))
            base = ".".join([*package.split(".")[: len(package.split(".")) - steps + 1], module.lstrip(".")]).strip(".")
        asked |= {base, *(f"{base}.{name}" for name in _NAME.findall(names))}
    for names in _IMPORT.findall(text):
        asked |= set(_NAME.findall(names))
    for name in asked:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            yield ".".join(parts[:length])
            yield ".".join([package, *parts[:length]])


def _name_module(path: str) -> str:
    """Return the name by which the source at this path is imported."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[0] in _ROOTS:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_visible(before: str | None, after: str | None) -> bool:
    """Whether other modules can see a difference between two texts of a module; None where there is no module."""
    if before is None or after is None:
        return True
    try:
        return ast.dump(_Outline().visit(ast.parse(before))) != ast.dump(_Outline().visit(ast.parse(after)))
    except (SyntaxError, ValueError, RecursionError):
        return True


class _Outline(ast.NodeTransformer):
    """Leaves of a module what the types of others can depend on.

    The body of a function is no part of it where the type of the result is written down, unless the body declares
    something by itself.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._outline(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._outline(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_docstring = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_docstring else node

    def _outline(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        declares = all(map(_is_stub, node.body)) or any(map(_may_declare, ast.walk(node)))
        if node.returns is not None and not declares:
            node.body = []
        return node


def _is_stub(statement: ast.stmt) -> bool:
    """Whether a function of such statements alone counts as one without an implementation."""
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, (ast.Pass, ast.Raise))


def _may_declare(node: ast.AST) -> bool:
    """Whether a part of a body assigns what is seen outside, or makes a generator of the function."""
    assigns = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    return assigns or isinstance(node, (ast.Global, ast.Yield, ast.YieldFrom))
