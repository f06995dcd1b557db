"""``run``: run a command in a target."""

from typing import Annotated

import typer

from hermes_exec.cli.fast_args import RunArguments
from hermes_exec.cli.options import Cwd, Env, Json, OnSeveral


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary, context_settings={"allow_interspersed_args": False})(run)


def run(  # noqa: PLR0913  one parameter an option
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="Shell text if it is one argument, else a program and its arguments."),
    ],
    *,
    on: OnSeveral = None,
    cwd: Cwd = None,
    env: Env = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End the command after this time: 90, 1.5s, 10m, 2h; 0 is never."),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Wait so long between TERM and KILL; by default 2s."),
    ] = None,
    shell: Annotated[
        bool | None,
        typer.Option("--shell/--no-shell", help="Run COMMAND as shell text, or as a program with arguments."),
    ] = None,
    stdin: Annotated[
        bool | None,
        typer.Option("--stdin/--no-stdin", "-i/-n", help="Connect standard input; by default unless it is a terminal."),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Write both outputs to one stream, in their order.")] = False,
    redact: Annotated[
        bool, typer.Option("--redact/--no-redact", help="Hide known secrets in the output, or do not.")
    ] = True,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set a limit: memory=2G, cpu=10m, processes=64, file-size=1G or open-files=256; may be repeated.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start the command as a job, and print its id.")
    ] = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name the job.")] = "",
    pty: Annotated[bool, typer.Option("--pty", "-t", help="Run the command on a terminal, as vim needs.")] = False,
    max_parallel: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Run in at most N of several targets at once; by default 32."),
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="After the first failure, end the command in all other targets.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, show_default=False, help="Print the log, as before the command."),
    ] = 0,
    json: Json = False,
) -> int:
    """Run a command in a target, pass on its output and errors, and exit with its exit code.

    A single argument is shell text, as in: run 'cd src && make'. Several arguments are a program and its arguments,
    without a shell, as in: run make -j4. Options precede the command; -- may separate them.

    With several --on, or a group of the configuration, it runs in all of them at once. The name of its target precedes
    each line, a table of all ends follows, and the highest exit code is returned.

    Exit codes: that of the command; 124 after the time limit; 125 if the target failed; 127 if there is no such
    program; 128 + N after signal N, so 130 after Ctrl-C, which ends the command and its processes.
    """
    from hermes_exec.cli.global_flags import set_verbosity
    from hermes_exec.cli.run_command import run_in_targets

    set_verbosity(verbose)
    return run_in_targets(
        RunArguments(
            command=command,
            on=on or [],
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
            max_parallel=max_parallel,
            fail_fast=fail_fast,
        )
    )
