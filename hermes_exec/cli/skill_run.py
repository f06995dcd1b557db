"""``skill run``: a registered skill in a new sandbox."""

from pathlib import Path
from typing import Annotated

import typer

from hermes_exec.cli.options import Number, Skill
from hermes_exec.cli.skill_running import Asked, perform


def run(
    name: Skill,
    *,
    arguments: Annotated[
        str,
        typer.Option("--json", metavar="ARGS", help="Its arguments, as a JSON object; - reads them from our input."),
    ] = "{}",
    on: Annotated[
        str | None,
        typer.Option("--on", "-o", metavar="TARGET", help="Where: bubblewrap, docker:IMAGE, a profile; this machine."),
    ] = None,
    number: Number = None,
    files: Annotated[
        Path | None, typer.Option("--files", "-f", metavar="DIR", help="A new folder for the files that it leaves.")
    ] = None,
    self_tested: Annotated[
        bool, typer.Option("--self-tested", help="You agree to run what nothing but its own tests speaks for.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", "-w", help="Print all that is known of the run, as JSON.")] = False,
) -> int:
    """Run a skill in a new sandbox, as it was proven, and print its result as JSON; what it prints is our errors.

    The exit code is 1 where the skill failed, and 125 where it was refused or no sandbox can be had.
    """
    return perform(Asked(name, arguments, on, number, files, self_tested, whole))
