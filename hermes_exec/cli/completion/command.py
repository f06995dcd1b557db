"""``completion``: print or install the completion script of a shell."""

from typing import Annotated, Literal

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json

Shell = Literal["bash", "zsh", "fish"]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(completion)


def completion(
    shell: Annotated[
        Shell | None,
        typer.Argument(metavar="[SHELL]", help="bash, zsh or fish; by default the shell that starts this."),
    ] = None,
    *,
    install: Annotated[
        bool, typer.Option("--install", help="Write the script, and load it at the start of the shell.")
    ] = False,
    json: Json = False,
) -> int:
    """Print the script that completes commands, options, targets, jobs, paths and names in a shell, or install it.

    It completes hermes-exec and hermes-cli. TAB opens no target that this would create, and waits 300 ms at most for a
    target that exists.
    """
    from hermes_exec.cli.completion.scripts import SCRIPTS, detect_shell, install_script

    name = shell or detect_shell()
    if not install:
        if json:
            show_json({"shell": name, "script": SCRIPTS[name]})
        else:
            print(SCRIPTS[name], end="")
        return 0
    path, start = install_script(name)
    if json:
        show_json({"shell": name, "script": str(path), "loaded_by": str(start) if start else None})
    else:
        note(f"written: {path}" + (f"; {start} loads it" if start else ""))
        note(f"completion begins in the next {name}")
    return 0
