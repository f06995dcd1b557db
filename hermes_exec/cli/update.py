"""``update``: show what a newer version changes, and install it with the installer that was used."""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.errors import HermesError, PlaceUnavailable, UsageError
from hermes_exec.extras import DISTRIBUTION, EXTRAS, missing_modules

_CHANGES = "hermes_exec/CHANGELOG.md"
"""The changelog in the wheel."""
_VERSION = re.compile(r"^## (\d+(?:\.\d+)*)", re.MULTILINE)
_LIMIT_S = 600
_LONGEST = 400
"""Characters of an installer's last line that an error shows."""


@dataclass(frozen=True, slots=True)
class Installer:
    """The program that installed this, and its command lines."""

    name: str
    fetch: tuple[str, ...]
    """Installs a package into a folder, which is the next argument."""
    upgrade: tuple[str, ...]
    restore: tuple[str, ...]
    """Installs the packages of a file, which is the next argument."""
    freeze: tuple[str, ...]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(update)


def update(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the newest version and its changes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> int:
    """Show what a newer version changes, ask, and install it with pip, pipx or uv, whichever installed this one.

    A version that does not start is replaced by the packages from before. With --check the exit code is 1 if there is
    a newer version.
    """
    from hermes_exec import __version__

    installer = find_installer()
    newest, changes = _fetch_newest(installer)
    is_newer = parse_version(newest) > parse_version(__version__)
    if json and (check or not is_newer):
        show_json({"version": __version__, "newest": newest, "changes": changes if is_newer else ""})
    elif not is_newer:
        note(f"{__version__} is the newest version")
    elif not json:
        print(f"{DISTRIBUTION} {newest} (installed: {__version__})\n\n{changes}".rstrip())
    if check or not is_newer:
        return CHECK_FAILED if is_newer else 0
    if not yes and not _confirm(newest, installer):
        note("nothing was changed")
        return 0
    _upgrade(installer, newest)
    if json:
        show_json({"version": newest, "before": __version__, "installer": installer.name})
    else:
        note(f"{newest} is installed")
    return 0


def _confirm(newest: str, installer: Installer) -> bool:
    from hermes_exec.cli.confirm import confirm

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("update asks before it installs, and there is no terminal", remedy="--yes, or --check")
    return confirm(f"Install {newest} with {shlex.join(installer.upgrade)}?")


def find_installer() -> Installer:
    """Return the installer of this installation.

    Raises:
        UsageError: this is a checkout, or its installer is not known.
    """
    import json
    from importlib.metadata import distribution

    installed = distribution(DISTRIBUTION)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        raise UsageError("this is a checkout, which its version control updates", remedy="git pull, then ./dev setup")
    extras = ",".join(extra for extra in EXTRAS if not missing_modules(extra))
    package = f"{DISTRIBUTION}[{extras}]" if extras else DISTRIBUTION
    prefix = Path(sys.prefix)
    uv = (shutil.which("uv") or "uv", "pip")
    python = ("--python", sys.executable)
    pip = (sys.executable, "-m", "pip")
    if (prefix / "uv-receipt.toml").exists():
        return _with_uv("uv tool", uv, python, (uv[0], "tool", "upgrade", DISTRIBUTION))
    if (prefix / "pipx_metadata.json").exists():
        upgrade = (shutil.which("pipx") or "pipx", "upgrade", DISTRIBUTION)
        # The environments of newer versions have no pip: they are made by uv.
        return _with_pip("pipx", pip, upgrade) if find_spec("pip") else _with_uv("pipx", uv, python, upgrade)
    if (installed.read_text("INSTALLER") or "").strip() == "uv":
        return _with_uv("uv", uv, python, (*uv, "install", *python, "--upgrade-package", DISTRIBUTION, package))
    return _with_pip("pip", pip, (*pip, "install", "--upgrade", package))


def _with_uv(name: str, uv: tuple[str, ...], python: tuple[str, ...], upgrade: tuple[str, ...]) -> Installer:
    fetch = (*uv, "install", *python, "--no-deps", "--upgrade", DISTRIBUTION, "--target")
    return Installer(name, fetch, upgrade, (*uv, "install", *python, "-r"), (*uv, "freeze", *python))


def _with_pip(name: str, pip: tuple[str, ...], upgrade: tuple[str, ...]) -> Installer:
    fetch = (*pip, "install", "--no-deps", "--upgrade", DISTRIBUTION, "--target")
    return Installer(name, fetch, upgrade, (*pip, "install", "-r"), (*pip, "freeze"))


def _fetch_newest(installer: Installer) -> tuple[str, str]:
    """Return the newest version, and the part of its changelog that is newer than this version."""
    from importlib.metadata import distributions

    from hermes_exec import __version__

    with tempfile.TemporaryDirectory(prefix="hermes-exec-update-") as folder:
        _run((*installer.fetch, folder), "the newest version cannot be fetched")
        found = [each.version for each in distributions(path=[folder]) if each.name == DISTRIBUTION]
        if not found:
            raise PlaceUnavailable("the newest version cannot be fetched: the installer left no package")
        file = Path(folder) / _CHANGES
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return found[0], select_changes(text, __version__)


def select_changes(text: str, version: str) -> str:
    """Return the sections of a changelog that are newer than ``version``."""
    starts = list(_VERSION.finditer(text))
    newer = [at for at, found in enumerate(starts) if parse_version(found[1]) > parse_version(version)]
    parts = [text[starts[at].start() : starts[at + 1].start() if at + 1 < len(starts) else len(text)] for at in newer]
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in "".join(parts)).rstrip()


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _upgrade(installer: Installer, newest: str) -> None:
    """Install the newest version; if it does not start, install the packages from before.

    Raises:
        PlaceUnavailable: it was not installed; the message says what is installed now.
    """
    before = _run(installer.freeze, "the installed packages cannot be listed")
    remedy = shlex.join(installer.upgrade)
    try:
        _run(installer.upgrade, f"{newest} was not installed")
        remedy = "wait for a later version"  # the same command would install this one again
        started = _run((sys.executable, "-P", "-m", "hermes_exec", "version"), f"{newest} does not start")
        if newest not in started:
            raise PlaceUnavailable(f"{newest} was not installed: {installer.name} left another version")
    except HermesError as error:
        changed = _list_changed(before, installer)
        with tempfile.TemporaryDirectory(prefix="hermes-exec-update-") as folder:
            file = Path(folder) / "packages.txt"
            file.write_text(changed, encoding="utf-8")
            if changed:
                _run((*installer.restore, str(file)), f"{error.what}; and the packages from before cannot be installed")
        raise PlaceUnavailable(f"{error.what}; the version from before is installed", remedy=remedy) from error


def _list_changed(before: str, installer: Installer) -> str:
    """Return the packages from before that are no longer installed; all of them if that is not known."""
    try:
        now = _run(installer.freeze, "the installed packages cannot be listed").splitlines()
    except HermesError:
        return before
    return "".join(f"{line}\n" for line in before.splitlines() if line not in now)


def _run(argv: tuple[str, ...], failed: str) -> str:
    """Run an installer and return its output."""
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlaceUnavailable(f"{failed}: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = lines[-1].removeprefix("cause: ").rstrip(".") if lines else ""
        raise PlaceUnavailable(
            f"{failed}: {reason:.{_LONGEST}}" if reason else failed,
            remedy="check the network, and the package index of the installer",
        )
    return done.stdout
