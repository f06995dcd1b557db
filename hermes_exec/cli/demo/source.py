"""What the demo works on: a real package from the index, or without a network a small one that we bring."""

from __future__ import annotations

import asyncio
import hashlib
import io
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORT = "report.xml"
_LIMIT_S = 180.0

PACKAGE = "typing_extensions==4.16.0"
"""Pure Python, needed by almost everybody, and its own suite runs in seconds."""
PACKAGE_SHA256 = "dc983d19a509c94dba722ee6abd33940f7c05a89e243c47e907eb4db6f1a43e5"
_OUTDATED = "test_typing_extensions.py::LiteralTests::test_args"
"""It counts on both of two equal lists; Python 3.14.10 keeps one."""
WHEELS = {
    "flit_core==3.12.0": "e7a0304069ea895172e3c7bb703292e992c5d1555dd1233ab7b5621b5b69e62c",
    "iniconfig==2.3.1": "9121e2c1fdb355232495be3194c8dfe87ccc2d5dee45947b78e68f499790d7a7",
    "packaging==26.3": "d7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c",
    "pluggy==1.7.0": "7dd7b0d8832ba3cb632c306926ded123429211b83641b35dc5c41ad2d34f9bec",
    "pygments==2.21.0": "2363c69b61c4a97c838da3b130dcd6468f4848992b21a82f2a63ec34377137d9",
    "pytest==9.2.0": "07acdcf88ec174f907dc01af70bf52d49b014bbab03faeeade31c96b18c2e588",
}
"""What builds it and runs its tests. They go along, so that the place itself needs no network."""


@dataclass(frozen=True, slots=True)
class Project:
    """A source distribution, and how it is tested."""

    title: str
    archive: Path
    wheels: Path | None
    """A folder with all that building and testing it takes; None when it takes nothing."""
    needs: tuple[str, ...]
    """What is installed beside it."""
    tests: tuple[str, ...]
    """The files of its suite, inside of the archive."""
    command: tuple[str, ...]
    """What runs them, behind the interpreter; it writes ``REPORT``."""


class NoNetwork(Exception):
    """The index cannot be asked, and why."""


async def from_index(folder: Path) -> Project:
    """Download the package and what it takes to ``folder``, and check all hashes.

    Raises:
        NoNetwork: there is no index, or nothing here to ask it with.
        PlaceUnavailable: the index gave something else than what is known under these names.
    """
    pip = _pip()
    sources, wheels = folder / "source", folder / "wheels"
    await _download(pip, [PACKAGE], sources, "--no-binary=:all:")
    await _download(pip, list(WHEELS), wheels, "--only-binary=:all:")
    verify(sources, {PACKAGE: PACKAGE_SHA256})
    verify(wheels, WHEELS)
    return Project(
        title=PACKAGE.replace("==", " "),
        archive=next(sources.iterdir()),
        wheels=wheels,
        needs=("pytest",),
        tests=("src/test_typing_extensions.py", "src/_typed_dict_test_helper.py"),
        command=("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={REPORT}", f"--deselect={_OUTDATED}"),
    )


def bundled(folder: Path) -> Project:
    """Pack the project that we bring."""
    top = "numerals-1.0"
    archive = folder / f"{top}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted((Path(__file__).parent / "project").iterdir()):
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{top}/{path.name.removesuffix('.in')}")
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return Project(
        title="numerals 1.0 (bundled)",
        archive=archive,
        wheels=None,
        needs=(),
        tests=("test_numerals.py", "run_tests.py"),
        command=("run_tests.py", REPORT),
    )


def _pip() -> list[str]:
    """The words that start a pip: this interpreter's, or else one that uv brings."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip"]
    uv = shutil.which("uv")
    if uv is None:
        raise NoNetwork("this Python has no pip, and there is no uv")
    return [uv, "tool", "run", "--python", sys.executable, "pip"]


async def _download(pip: Sequence[str], wanted: list[str], to: Path, kind: str) -> None:
    argv = [*pip, "download", "--quiet", "--disable-pip-version-check", "--retries=1", "--no-deps", kind]
    child = await asyncio.create_subprocess_exec(
        *argv,
        f"--dest={to}",
        *wanted,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            _, said = await child.communicate()
    except TimeoutError:
        raise NoNetwork(f"the package index did not answer within {_LIMIT_S:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.startswith("ERROR")]
        raise NoNetwork((lines or ["pip download failed"])[0].removeprefix("ERROR: "))


def verify(folder: Path, wanted: dict[str, str]) -> None:
    """Look for a file with each of the SHA-256 hashes in ``folder``.

    Raises:
        PlaceUnavailable: one is missing; names the package.
    """
    found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    for name, digest in wanted.items():
        if digest not in found:
            raise PlaceUnavailable(
                f"what the index gave for {name} has another SHA-256 than {digest}",
                remedy="look at which index pip is configured for",
            )
