"""The packages of a skill: requirements, and the folders of unpacked packages that satisfy them.

A skill names packages, by name, version and marker alone, in any of the files that may list them. A folder is named by
a hash of its content and shared by skills with the same requirements.

We resolve and fetch wheels alone, with a network, so no code of a package runs. pip unpacks them in a sandbox without a
network, after checking the hashes that were fixed before. We treat the result as data.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import difflib
import hashlib
import json
import os
import posixpath
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import missing_extra
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.gate.launch import PYTHON, SKILLS, identify_interpreter, python_version
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, functional
from hermes_exec_policies.load import override_policy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from packaging.requirements import Requirement

    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.model import Policy


_MOST = 30
_LIKE = 0.85
_LONG = 5
_OURS = re.compile(r"hermes-?exec\b")
_PATH = re.compile(r"/|\.(py|sh|js)$")
"""A word of ``metadata.scripts`` that names a file instead of a package."""
# As specified in PEP 723.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def collect_requirements(tree: Tree, manifest: Manifest) -> tuple[list[Requirement], list[Finding]]:
    """Return the requirements in SKILL.md, requirements.txt and scripts, and findings about them."""
    wrong: list[Finding] = []
    scripts = [each.path for each in tree.files if each.path.startswith("scripts/") and each.path.endswith(".py")]
    lines = _lines(tree, manifest.needs.packages)
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


def find_imports(texts: Mapping[str, str]) -> list[str]:
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
            raise SkillRefused(
                functional("dependencies.resolve", f"its packages cannot be installed: {done[2]}")
            )
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


async def install(policy: Policy, wanted: Sequence[Requirement], work: Path, store: Environments) -> Path:
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
