"""The folders of unpacked packages that satisfy the requirements of skills.

A folder is named by a hash of its content and shared by skills with the same requirements.

We resolve and fetch wheels alone, with a network, so no code of a package runs. pip unpacks them in a sandbox without a
network, after checking the hashes that were fixed before. We treat the result as data.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import missing_extra
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.gate.analysis.requirements import find_known_bad
from hermes_exec_policies.gate.launch import PYTHON, SKILLS, identify_interpreter, python_version
from hermes_exec_policies.gate.verdict import SkillRefused, functional
from hermes_exec_policies.load import override_policy

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hermes_exec_policies.model import Policy


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

    async def lock(self, wanted: Sequence[str], version: str) -> str:
        """Return exact versions and hashes of wheels for requirements and their dependencies, for a Python ``version``.

        The index is queried once for the same requirements; later calls return the same versions without it.

        Raises:
            SkillRefused: no set of wheels satisfies the requirements.
            MissingExtra: uv is not installed.
        """
        lines = "".join(f"{each}\n" for each in sorted(set(map(_check_requirement, wanted))))
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
            raise SkillRefused(functional("dependencies.resolve", f"its packages cannot be installed: {done[2]}"))
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


def _check_requirement(text: str) -> str:
    """Return a requirement if it is a name with versions and a marker, and no option or address for uv.

    Raises:
        SkillRefused: it is something else.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    if found is None or found.url is not None:
        raise SkillRefused(functional("dependencies.syntax", f"{text[:80]!a} is not a requirement"))
    return str(found)


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
            raise SkillRefused(functional("dependencies.special", f"{path.name} is not a regular file"))
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


async def install(policy: Policy, wanted: Sequence[str], work: Path, store: Environments) -> Path:
    """Return the folder of packages that satisfies requirements; it is kept for the next skill that has the same.

    Args:
        policy: the confinement in which wheels are unpacked.
        wanted: the requirements, at least one.
        work: a private folder that a sandbox's user can reach.
        store: the kept folders.

    Raises:
        SkillRefused: they cannot be resolved or fetched, or one of them is known to be harmful.
        Unsupported: the policy cannot be enforced here.
        PlaceUnavailable: no sandbox can be created.
    """
    python = identify_interpreter(PYTHON)
    lock = await store.lock(wanted, python_version())
    if bad := find_known_bad(lock):
        raise SkillRefused(*bad)
    kept = store.find(lock, python)
    if kept is None:
        await prove(policy, watched=True)
        (wheels := work / "wheels").mkdir(mode=0o755)
        (unpacked := work / "unpacked").mkdir(mode=0o711)
        await store.fetch(lock, python_version(), wheels)
        made = await unpack_wheels(policy, wheels, copy_tools(work, PIP), unpacked)
        kept = store.store(made, lock, python)
    return kept


PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
PIP = ("pip",)
_WHEELS, _PIP = f"{SKILLS}/.wheels", f"{SKILLS}/.pip"
_ROOM = {
    "limits": {
        "disk": "2 GiB", "file_size": "1 GiB", "inodes": 100_000, "memory": "3 GiB", "cpu_time": 600.0, "time": 600.0,
    }
}  # fmt: skip
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pip._internal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


async def unpack_wheels(policy: Policy, wheels: Path, pip: Path, into: Path) -> Path:
    """Unpack the wheels that ``lock.txt`` in ``wheels`` lists into a new folder below ``into``.

    Raises:
        SkillRefused: a wheel is broken, or does not match its hash.
        Unsupported: a required rule cannot be enforced here.
        PlaceUnavailable: no sandbox can be created.
    """
    roomy = override_policy(policy, _ROOM)
    readonly = {str(wheels): _WHEELS, str(pip): _PIP}
    confinement, limits = build_confinement(roomy, this_machine(), readonly=readonly)
    words = ["install", "--isolated", "--no-index", "--find-links", _WHEELS, "--require-hashes", "--no-deps"]
    words += ["--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location", "--quiet"]
    words += ["--only-binary", ":all:", "--target", "/app/data/packages", "-r", f"{_WHEELS}/lock.txt"]
    argv = [PYTHON, "-I", "-S", "-B", "-c", _PROGRAM, _PIP, *words]
    async with await start(confinement, argv, limits=dataclasses.replace(limits, output=1 << 20)) as run:
        run.go()
        ended = await run.wait()
        if ended.exit.code != 0:
            said = " ".join(ended.stderr.decode("utf-8", "replace").split())[-300:]
            raise SkillRefused(
                functional("dependencies.unpack", f"its packages cannot be unpacked: {said or ended.limit}")
            )
        run.collect("/app/data", into / "data", max_bytes=2 << 30, max_files=100_000)
    packages = into / "data" / "packages"
    if (packages / "bin").is_dir():
        shutil.rmtree(packages / "bin")  # scripts of packages, whose interpreter does not exist
    return packages


def copy_tools(parent: Path, names: tuple[str, ...] = PYTEST) -> Path:
    """Return the folder with the packages ``names``, created below ``parent`` if it does not exist.

    Compiled modules are copied, too: an interpreter of this version in a sandbox, where it can write none, starts
    pytest with them in half the time, and another version ignores them.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        found = [distribution(name) for name in names]
    except PackageNotFoundError as error:
        raise missing_extra("skills", str(error.name), "to judge skills") from error
    key = " ".join(f"{each.name}={each.version}" for each in found)
    target = parent / f"tools-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    for each in found:
        for file in each.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc":
                to = made / str(file)
                to.parent.mkdir(parents=True, exist_ok=True)
                _copy_module(str(file.locate()), str(to))
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with contextlib.suppress(OSError):  # another process was faster
        os.rename(made, target)  # noqa: PTH104  it must not replace
    shutil.rmtree(made, ignore_errors=True)
    return target


def _copy_module(path: str, to: str) -> None:
    """Copy a file with its times, which a compiled module has to match, and its compiled module if there is one."""
    shutil.copy2(path, to)
    if not path.endswith(".py"):
        return
    compiled, target = (Path(cache_from_source(each, optimization="")) for each in (path, to))
    with contextlib.suppress(FileNotFoundError):
        data = compiled.read_bytes()
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
