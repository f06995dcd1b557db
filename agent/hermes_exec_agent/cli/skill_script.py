"""``skill script``: run one script of a registered skill in a sandbox."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec_agent.cli.options import Number, Skill

if TYPE_CHECKING:
    from hermes_exec_agent.skills.run.scripts import ScriptOutcome


def script(  # noqa: PLR0913  each is an option
    name: Skill,
    path: Annotated[str, typer.Argument(metavar="SCRIPT", help="Its path in the skill, such as scripts/fill.py.")],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[ARG]...", help="Its arguments; options for this command precede.")
    ] = None,
    *,
    given: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", metavar="PATH", help="Copy a file or folder to its working directory."),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", "-f", metavar="DIR", help="Save new and changed files in this new folder."),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Pass standard input to the script.")] = False,
    time_limit: Annotated[
        float | None, typer.Option("--timeout", "-t", metavar="SECONDS", min=0.001, help="End it after so long.")
    ] = None,
    number: Number = None,
    json: Json = False,
) -> int:
    """Run a script of a skill in a new sandbox, and print its output unchanged. Nothing else of it is proven.

    The working directory is a writable folder with the inputs; the skill's files cannot be written to. The exit code is
    the script's; 1 if a signal or a limit ended it, and 125 if it was refused or no sandbox is available.
    """
    data = sys.stdin.buffer.read() if stdin else b""
    return interruptible.run(_run(name, path, args or [], given or [], data, files, number, time_limit, json=json))


async def _run(  # noqa: PLR0913  each is an option
    name: str,
    path: str,
    args: list[str],
    given: list[Path],
    data: bytes,
    files: Path | None,
    number: int | None,
    time_limit: float | None,
    *,
    json: bool,
) -> int:
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.scripts import run_script

    outcome = await run_script(
        Registry(), name, path, args, given=given, stdin=data, files=files, number=number, time_limit_s=time_limit
    )
    (_print_json if json else _print_output)(outcome)
    if outcome.denied or outcome.exit_code is None:
        return CHECK_FAILED
    return outcome.exit_code


def _print_output(outcome: "ScriptOutcome") -> None:
    for stream, data in ((sys.stdout, outcome.stdout), (sys.stderr, outcome.stderr)):
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    if outcome.denied:
        say(outcome.denied)
        say(f"{outcome.name} {outcome.version} is in quarantine now")
    elif outcome.exit_code is None:
        say(f"{outcome.script}: {outcome.reason}")
    if outcome.hint:
        note(f"{outcome.script}: {outcome.hint}")
    for path in outcome.left:
        note(f"left in the sandbox: {path}")


def _print_json(outcome: "ScriptOutcome") -> None:
    from dataclasses import asdict

    facts = asdict(outcome)
    facts |= {name: facts[name].decode("utf-8", "replace") for name in ("stdout", "stderr")}
    show_json({**facts, "ok": outcome.ok, "proven": False})
