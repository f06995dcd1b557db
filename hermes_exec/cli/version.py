"""``version``: print the version."""

import platform
import sys
from pathlib import Path

import typer

from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(version)


def version(*, json: Json = False) -> int:
    """Print the version of hermes-exec; --json adds those of Python and the system, for reports of problems."""
    import hermes_exec

    if not json:
        print(f"hermes-exec {hermes_exec.__version__}")
        return 0
    show_json(
        {
            "version": hermes_exec.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "interpreter": sys.executable,
            "folder": str(Path(hermes_exec.__file__).parent),
        }
    )
    return 0
