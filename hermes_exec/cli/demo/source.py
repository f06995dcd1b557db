"""The project of the demo: a package of the index, or without a network a small bundled one."""

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
"""Pure Python, widely used, and its test suite runs in seconds."""
PACKAGE_SHA256 = "dc983d19a509c94dba722ee6abd33940f7c05a89e243c47e907eb4db6f1a43e5"
_OUTDATED = "test_typing_extensions.py::LiteralTests::test_args"
"""It expects two equal lists to be distinct; Python 3.14.10 keeps one."""
WHEELS = {
    "flit_core==3.12.0": "e7a0304069ea895172e3c7bb703292e992c5d1555dd1233ab7b5621b5b69e62c",
    "iniconfig==2.3.1": "9121e2c1fdb355232495be3194c8dfe87ccc2d5dee45947b78e68f499790d7a7",
    "packaging==26.3": "d7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c",
    "pluggy==1.7.0": "7dd7b0d8832ba3cb632c306926ded123429211b83641b35dc5c41ad2d34f9bec",
    "pygments==2.21.0": "2363c69b61c4a97c838da3b130dcd6468f4848992b21a82f2a63ec34377137d9",
    "pytest==9.2.0": "07acdcf88ec174f907dc01af70bf52d49b014bbab03faeeade31c96b18c2e588",
}
"""Build and test dependencies. They are uploaded, so that the target needs no network."""


@dataclass(frozen=True, slots=True)
class Project:
    """A source distribution, and the command that tests it."""

    title: str
    archive: Path
    wheels: Path | None
    """A folder with the build and test dependencies; None where there are none."""
    needs: tuple[str, ...]
    """Distributions to install with it."""
    tests: tuple[str, ...]
    """The files of its test suite, as paths in the archive."""
    command: tuple[str, ...]
    """The arguments of the interpreter that run the tests and write ``REPORT``."""


class NoNetwork(Exception):
    """The package index cannot be reached; the message has the reason."""


async def download_project(folder: Path) -> Project:
    """Download the package and its dependencies to ``folder``, and check all hashes.

    Raises:
        NoNetwork: the index cannot be reached, or this machine has no pip.
        PlaceUnavailable: a file has another hash than expected.
    """
    pip = _find_pip()
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


def pack_bundled(folder: Path) -> Project:
    """Pack the bundled project into ``folder``."""
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


def _find_pip() -> list[str]:
    """Return the argv of pip: that of this interpreter, or else one that uv runs."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip"]
    uv = shutil.which("uv")
    if uv is None:
        raise NoNetwork("this Python has no pip, and uv is not installed")
    return [uv, "tool", "run", "--python", sys.executable, "pip"]


async def _download(pip: Sequence[str], requirements: list[str], to: Path, kind: str) -> None:
    argv = [*pip, "download", "--quiet", "--disable-pip-version-check", "--retries=1", "--no-deps", kind]
    child = await asyncio.create_subprocess_exec(
        *argv,
        f"--dest={to}",
        *requirements,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            _, stderr = await child.communicate()
    except TimeoutError:
        raise NoNetwork(f"the package index did not answer within {_LIMIT_S:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.startswith("ERROR")]
        raise NoNetwork((lines or ["pip download failed"])[0].removeprefix("ERROR: "))


def verify(folder: Path, hashes: dict[str, str]) -> None:
    """Check that ``folder`` has a file with each of these SHA-256 hashes.

    Raises:
        PlaceUnavailable: no file has the hash of a package.
    """
    found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    for name, digest in hashes.items():
        if digest not in found:
            raise PlaceUnavailable(
                f"the file of {name} from the package index has another SHA-256 than {digest}",
                remedy="check which index pip is configured for",
            )
