"""Folders of unpacked packages, named by a hash of their content and shared by skills with the same requirements.

We resolve and fetch wheels alone, with a network, so no code of a package runs. pip unpacks them in a sandbox without a
network, after checking the hashes that were fixed before. We treat the result as data.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import missing_extra
from hermes_exec_policies.gate.verdict import SkillRefused, functional

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from packaging.requirements import Requirement

_FETCH_S = 600.0
_STARTS = re.compile(r"(^|/)(sitecustomize|usercustomize)(\.py|/__init__\.py)$")
_SAID = 300


@dataclass(frozen=True, slots=True)
class Index:
    """The source of wheels: a folder, or, if it is None, the index that uv and pip are configured with."""

    folder: Path | None = None

    def options(self) -> list[str]:
        """Return the options for uv and pip."""
        return ["--no-index", "--find-links", str(self.folder)] if self.folder else []


class Environments:
    """The folders of packages below one root folder of ours."""

    def __init__(self, root: Path | None = None, index: Index | None = None) -> None:
        """Use ``root``, which is created on first use; by default a folder of our state."""
        self.root = root or state_folder(os.environ) / "environments"
        self.index = index or Index()

    async def lock(self, wanted: Sequence[Requirement], version: str) -> str:
        """Return exact versions and hashes of wheels for requirements and their dependencies, for a Python ``version``.

        The index is queried once for the same requirements; later calls return the same versions without it.

        Raises:
            SkillRefused: no set of wheels satisfies the requirements.
            MissingExtra: uv is not installed.
        """
        lines = "".join(f"{each}\n" for each in sorted(set(map(str, wanted))))
        key = hashlib.sha256(f"{version}\n{self.index.folder or ''}\n{lines}".encode()).hexdigest()
        chosen = self.root / f"{key}.lock"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if (found := chosen.read_text("utf-8")).endswith("\n"):
                return found
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "wanted.in").write_text(lines)
            words = ["pip", "compile", "wanted.in", "--generate-hashes", "--only-binary", ":all:", "--no-config"]
            words += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
            done = await _run(_uv(), *words, "--python-version", version, *self.index.options(), cwd=folder)
        if done[0]:
            raise SkillRefused(functional("dependencies.resolve", f"its packages cannot be had together: {done[2]}"))
        lock = "\n".join(line for line in done[1].splitlines() if line and not line.startswith("#")) + "\n"
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        half = chosen.with_suffix(f".{os.getpid()}")
        half.write_text(lock)
        half.replace(chosen)
        return lock

    def find(self, lock: str, interpreter: str) -> Path | None:
        """Return the folder that this lock describes, if it exists and still matches; a changed one is moved away."""
        note = self._note(lock, interpreter)
        try:
            name = str(json.loads(note.read_text("utf-8"))["environment"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not re.fullmatch(r"[0-9a-f]{64}", name) or not (self.root / name).is_dir():
            return None
        try:
            whole = environment_digest(self.root / name) == name
        except (OSError, SkillRefused):
            whole = False
        if not whole:
            with contextlib.suppress(OSError):  # another process was faster
                (self.root / name).rename(self.root / f".changed-{name}-{secrets.token_hex(8)}")
            return None
        os.utime(self.root / name)  # mark it as used: garbage collection keeps recent ones
        return self.root / name

    async def fetch(self, lock: str, version: str, into: Path) -> None:
        """Fetch the wheels of ``lock`` into a folder and check their hashes.

        Raises:
            SkillRefused: a wheel cannot be fetched, or has another hash.
        """
        (into / "lock.txt").write_text(lock)
        words = ["-I", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-input"]
        words += ["--only-binary", ":all:", "--require-hashes", "-r", str(into / "lock.txt"), "-d", str(into)]
        words += ["--python-version", version, *self.index.options()]
        done = await _run(sys.executable, *words, cwd=str(into))
        if done[0]:
            raise SkillRefused(functional("dependencies.fetch", f"its packages cannot be fetched: {done[2]}"))

    def store(self, unpacked: Path, lock: str, interpreter: str) -> Path:
        """Check unpacked packages, and keep them under the hash of their content.

        Raises:
            SkillRefused: they contain a file that an interpreter runs at startup.
        """
        refuse_startup_files(unpacked)
        for path in (unpacked, *unpacked.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        name = environment_digest(unpacked)
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.root / name).is_dir():
            made = Path(tempfile.mkdtemp(dir=self.root, prefix=".new-"))
            shutil.copytree(unpacked, made / "tree")
            with contextlib.suppress(OSError):  # another process was faster
                os.rename(made / "tree", self.root / name)  # noqa: PTH104  it must not replace
            shutil.rmtree(made, ignore_errors=True)
        note = self._note(lock, interpreter)
        half = note.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps({"environment": name, "lock": lock}))
        half.replace(note)
        return self.root / name

    def collect_garbage(self, used: Collection[str], *, older_s: float = 0.0) -> list[str]:
        """Remove every environment except those with these digests and those used in the last ``older_s`` seconds.

        Return the removed ones. Incomplete environments that a crash left are removed, too.
        """
        since = time.time() - older_s
        old = [
            each
            for each in (self.root.iterdir() if self.root.is_dir() else ())
            if each.name not in used and each.lstat().st_mtime <= since
        ]
        gone = [each for each in old if re.fullmatch(r"[0-9a-f]{64}", each.name)]
        # A folder under its final name is complete at every moment, even if we are killed.
        renamed = [path.rename(self.root / f".new-{secrets.token_hex(8)}") for path in gone]
        for path in (*renamed, *(each for each in old if each.name.startswith(".new-"))):
            shutil.rmtree(path)
        return sorted(each.name for each in gone)

    def _note(self, lock: str, interpreter: str) -> Path:
        key = hashlib.sha256(f"{interpreter}\n{lock}".encode()).hexdigest()
        return self.root / f"{key}.json"


def refuse_startup_files(folder: Path) -> None:
    """Refuse packages with code that an interpreter runs at startup.

    Raises:
        SkillRefused: there is a file with such code.
    """
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if _STARTS.search(name):
            raise SkillRefused(
                functional("dependencies.start-up", f"a package holds {name}, which every start would run")
            )
        if name.endswith(".pth") and re.search(r"(?m)^\s*import[\s\t]", path.read_text("utf-8", "replace")):
            raise SkillRefused(
                functional("dependencies.start-up", f"a package holds {name}, which runs code at every start")
            )


def environment_digest(folder: Path) -> str:
    """Return the SHA-256 of the paths, modes and bytes of everything in a folder; links in it are an error.

    Raises:
        SkillRefused: it contains something that is neither a regular file nor a folder.
    """
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda each: str(each).encode("utf-8", "surrogateescape")):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise SkillRefused(functional("dependencies.special", f"{path.name} is no plain file"))
        name = str(path.relative_to(folder)).encode("utf-8", "surrogateescape")
        total.update(b"%d:%s%o" % (len(name), name, mode))
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def share_environment(environment: Path, into: Path) -> Path:
    """Make an environment's files reachable for a sandbox's user: hard links, or copies on another file system."""
    try:
        shutil.copytree(environment, into, symlinks=True, copy_function=os.link)
    except OSError:
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(environment, into, symlinks=True)
    return into


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise missing_extra("skills", "uv", "to choose packages")
    return found


async def _run(*words: str, cwd: str) -> tuple[int, str, str]:
    """Run a program; return its exit code, its output and the end of its standard error."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_FETCH_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise PlaceUnavailable(f"{Path(words[0]).name}: no answer within {_FETCH_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    said = " ".join(err.decode("utf-8", "replace").split())[-_SAID:]
    return process.returncode or 0, out.decode("utf-8", "replace"), said
