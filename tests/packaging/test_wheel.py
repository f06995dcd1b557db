"""The wheel, built the way a user gets it: through the source distribution."""

from __future__ import annotations

import configparser
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {
    "hermes_exec": ROOT,
    "hermes_exec_backends": ROOT / "backends",
    "hermes_exec_policies": ROOT / "policies",
    "hermes_exec_agent": ROOT / "agent",
    "hermes_exec_harness": ROOT / "agent",
}

pytestmark = [pytest.mark.slow, pytest.mark.required]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    # Without --wheel, build makes the sdist first and the wheel from that alone.
    out = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-I", "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    assert list(out.glob("*.tar.gz"))
    return zipfile.ZipFile(path)


def test_wheel_installs_exactly_our_names(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    assert tops == set(SOURCE_ROOTS)


def test_wheel_holds_every_file_of_every_package(wheel: zipfile.ZipFile) -> None:
    ours = {
        path.relative_to(root).as_posix()
        for package, root in SOURCE_ROOTS.items()
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == {*ours, "hermes_exec/CHANGELOG.md"}


def test_wheel_marks_all_four_packages_as_typed(wheel: zipfile.ZipFile) -> None:
    typed = {name for name in wheel.namelist() if name.endswith("py.typed")}
    assert typed == {f"{package}/py.typed" for package in SOURCE_ROOTS}


def test_wheel_holds_the_guest_as_source(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    guest = {f"hermes_exec/guest/{path.name}" for path in (ROOT / "hermes_exec/guest").glob("*.py")}
    assert "hermes_exec/guest/__init__.py" in guest
    assert guest <= names


def test_wheel_holds_the_licence(wheel: zipfile.ZipFile) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_every_entry_point_names_a_thing_that_the_wheel_holds(wheel: zipfile.ZipFile) -> None:
    (listing,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(wheel.read(listing).decode())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(parser.sections()) == {"console_scripts", *declared}
    names = set(wheel.namelist())
    for section in parser.sections():
        for name, target in parser[section].items():
            module = target.partition(":")[0].replace(".", "/")
            assert names & {f"{module}.py", f"{module}/__init__.py"}, f"{section}: {name} = {target}"


def test_installed_wheel_runs_with_nothing_of_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    # Unpacking is what installing a pure wheel does; the dependencies come from this environment.
    wheel.extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import hermes_exec, hermes_exec_backends, hermes_exec_policies, hermes_exec_agent\n"
        "print(hermes_exec.__file__, hermes_exec_backends.__file__, sep='\\n')\n"
        "assert all(hasattr(hermes_exec, name) for name in hermes_exec.__all__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(tmp_path)) for line in done.stdout.splitlines())
