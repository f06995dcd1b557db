"""What each checker has passed in this checkout, so that a plain ``./dev test`` checks only what may differ since.

A checker reads the sources, its configuration, the stubs and the installed packages. While none of these differs, it
would say the same again. pyright, which has no cache, is given the files that differ and those that import them. In a
new checkout, where it has passed nothing yet, what is committed counts as passed, for CI checks each commit as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev.place import CACHE, LOCK, ROOT, SOURCES, venv

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = CACHE / "passed"
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+[.\w]+[ \t]+import[ \t]+\([^)]*|(?:from|import)[ \t][^\n]*)", re.MULTILINE)
"""An import; what only looks like one, in a string for example, counts as well."""


@dataclass(frozen=True)
class Snapshot:
    """All that a checker reads, at one moment."""

    settings: str
    """A digest of the configuration, the stubs and the names and versions of what is installed."""
    sources: Mapping[str, str]
    """The digest of each source, by its path below the checkout."""


def take_snapshot(root: Path = ROOT) -> Snapshot:
    """Read what a checker would read now."""
    settings = hashlib.sha256(str(venv()).encode())
    for path in (root / "pyproject.toml", root / LOCK.name, *sorted((root / "typings").rglob("*.pyi"))):
        settings.update(f"\n{path}\n".encode() + path.read_bytes())
    for folder in sorted(venv().glob("lib/python*/site-packages")):
        settings.update("\n".join(sorted(path.name for path in folder.iterdir())).encode())
    files = [path for name in SOURCES for path in (root / name).rglob("*.py")]
    sources = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return Snapshot(settings.hexdigest(), sources)


def read_passed(checker: str, folder: Path = _FOLDER) -> Snapshot | None:
    """Return what the checker has passed last, or None."""
    try:
        return Snapshot(**json.loads((folder / checker).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write_passed(checker: str, snapshot: Snapshot, folder: Path = _FOLDER) -> None:
    """Keep what the checker has passed."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{checker}.new"
    written.write_text(json.dumps(asdict(snapshot)))
    written.rename(folder / checker)


def read_committed(now: Snapshot, root: Path = ROOT) -> Snapshot | None:
    """Return the snapshot without the sources that differ from the last commit.

    Returns None without a commit, or where the settings differ from it.
    """
    changed = _ask_git(root, "diff", "--name-only", "--no-renames", "-z", "HEAD")
    new = _ask_git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if changed is None or new is None:
        return None
    paths = {path for path in (changed + new).split("\0") if path}
    if any(path in {"pyproject.toml", LOCK.name} or path.startswith("typings/") for path in paths):
        return None
    return Snapshot(now.settings, {**now.sources, **{path: "" for path in paths if path.endswith(".py")}})


def _ask_git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True)
    except OSError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def find_affected(passed: Snapshot | None, now: Snapshot, root: Path = ROOT) -> set[str]:
    """Return the sources that differ from those that passed, and those that import one of these by its name."""
    if passed is None or passed.settings != now.settings:
        return set(now.sources)
    paths = passed.sources.keys() | now.sources.keys()
    changed = {path for path in paths if passed.sources.get(path) != now.sources.get(path)}
    if not changed:
        return changed
    stems = {path.parent.name if path.stem == "__init__" else path.stem for path in map(Path, changed)}
    name = re.compile(rf"\b(?:{'|'.join(map(re.escape, stems))})\b")
    others = (path for path in now.sources if path not in changed)
    importers = {path for path in others if any(map(name.search, _find_imports(root / path)))}
    return (changed & now.sources.keys()) | importers


def _find_imports(path: Path) -> list[str]:
    return _IMPORT.findall(path.read_text(encoding="utf-8", errors="replace"))
