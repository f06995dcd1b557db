"""The words of ``run``."""

from typing import Annotated

import typer

from hermes_exec.cli.fast_args import Spoken
from hermes_exec.cli.options import Cwd, Env, Json, On


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary, context_settings={"allow_interspersed_args": False})(run)


def run(  # noqa: PLR0913  one parameter an option
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="One word is shell text; more are a program's words."),
    ],
    *,
    on: On = None,
    cwd: Cwd = None,
    env: Env = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End it after that long: 90, 1.5s, 10m, 2h; 0 is never."),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Between TERM and KILL when it is ended; 2s if left out."),
    ] = None,
    shell: Annotated[
        bool | None, typer.Option("--shell/--no-shell", help="Whether COMMAND is text for the place's shell.")
    ] = None,
    stdin: Annotated[
        bool | None,
        typer.Option("--stdin/--no-stdin", "-i/-n", help="Whether it reads our input; only a piped one, if left out."),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="One stream for both outputs, in their true order.")] = False,
    redact: Annotated[
        bool, typer.Option("--redact/--no-redact", help="Whether known secrets are hidden in its output.")
    ] = True,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="memory=2G, cpu=10m, processes=64, file-size=1G or open-files=256."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it as a job, and print the job's id.")] = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call the job.")] = "",
    pty: Annotated[bool, typer.Option("--pty", "-t", help="Give it a terminal of its own, as vim needs.")] = False,
    json: Json = False,
) -> int:
    """Run a command in a place; its output, its errors and its exit code become ours.

    One word is shell text, as in: run 'cd src && make'. Several are a program and its arguments that no
    shell looks at, as in: run make -j4. Options stand before the command; a -- may stand between.

    Exit codes: the command's own; 124 at its time limit; 125 when the place failed us; 127 when there is
    no such program; 128 + N after signal N, and so 130 after Ctrl-C, which ends all that it started.
    """
    from hermes_exec.cli.run_command import perform

    return perform(
        Spoken(
            command=command,
            on=on,
            cwd=cwd,
            env=env or [],
            timeout=timeout,
            grace=grace,
            shell=shell,
            stdin=stdin,
            merge=merge,
            redact=redact,
            json=json,
            limits=limit or [],
            detach=detach,
            name=name,
            pty=pty,
        )
    )
