"""``shell``: open a login shell in a target."""

import os
from typing import Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import parse_duration, parse_variables
from hermes_exec.cli.attach_pty import run_attached
from hermes_exec.cli.fast_args import RunArguments
from hermes_exec.cli.open_target import open_planned, plan_personal, refuse_to_leave
from hermes_exec.cli.options import Cwd, Env, Json, On
from hermes_exec.cli.run_command import run_command

_LOGIN_SHELL = """
shell=$SHELL user=$(id -u)
[ -n "$shell" ] || while IFS=: read -r _ _ id _ _ _ named; do
    [ "$id" != "$user" ] || { shell=$named; break; }
done </etc/passwd
case ${shell##*/} in "" | nologin | false) shell=/bin/sh ;; esac
exec "$shell" -l
"""
"""The program that a PTY runs by default."""
_UNLIMITED_S = 10 * 365 * 86400.0


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(shell)


def shell(
    on: On = None,
    cwd: Cwd = None,
    env: Env = None,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", "-k", help="Keep the shell running when you detach, for: attach NAME.")
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name the shell for attach; by default a random word.")
    ] = "",
    keep_for: Annotated[
        str, typer.Option(metavar="TIME", help="End a kept shell so long after the last client detached; 0 is never.")
    ] = "1d",
    json: Json = False,
) -> int:
    """Open the login shell of a target on a terminal; exit with its exit code.

    All keys go to the shell, Ctrl-C too. After Enter, ~. ends the shell and its processes, and ~? lists the other
    escapes. With --keep, ~d detaches and the shell keeps running, as it does after a closed window or a lost
    connection.

    If standard input is a pipe or a file, the shell runs it as a script, without a terminal. --json prints the result
    at the end; of a script with its outputs.
    """
    keep_s = (parse_duration(keep_for) or _UNLIMITED_S) if keep or name else 0.0
    if not keep_s and not os.isatty(0):
        script = ["sh", "-c", _LOGIN_SHELL]
        target = [on] if on else []
        arguments = RunArguments(script, on=target, cwd=cwd, env=env or [], shell=False, stdin=True, json=json)
        return run_command(arguments)

    async def work() -> int:
        async with open_planned(plan_personal(on)) as terminal:
            if keep_s:
                refuse_to_leave(terminal, "a kept shell")
            variables = parse_variables(env or [])
            return await run_attached(terminal, None, cwd=cwd, env=variables, name=name, keep_s=keep_s, json=json)

    return interruptible.run(work())
