"""``skill run``: a registered skill in a new sandbox."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import loop
from hermes_exec.cli.ask import agrees
from hermes_exec.cli.flags import flags
from hermes_exec.cli.say import CHECK_FAILED, note, say
from hermes_exec.cli.show import show_json
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry import Registry
    from hermes_exec_agent.skills.running import Outcome


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.")],
    *,
    arguments: Annotated[
        str,
        typer.Option("--json", metavar="ARGS", help="Its arguments, as a JSON object; - reads them from our input."),
    ] = "{}",
    on: Annotated[
        str | None,
        typer.Option("--on", "-o", metavar="TARGET", help="Where: bubblewrap, docker:IMAGE, a profile; this machine."),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--version", "-V", metavar="N", help="A version; the current one if left out.")
    ] = None,
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
    import json

    text = sys.stdin.read() if arguments == "-" else arguments
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json: this is no JSON: {error}", remedy="""--json '{"name": "value"}'""") from error
    if not isinstance(given, dict):
        raise UsageError("--json: should be an object, with arguments by their names")
    return loop.run(_run(name, given, on, number, files, self_tested, whole))  # pyright: ignore[reportUnknownArgumentType]  JSON


async def _run(
    name: str,
    arguments: dict[str, Any],
    on: str | None,
    number: int | None,
    files: Path | None,
    self_tested: bool,  # noqa: FBT001  handed on
    whole: bool,  # noqa: FBT001  handed on
) -> int:
    from dataclasses import asdict

    from hermes_exec_agent.skills import places, running
    from hermes_exec_agent.skills.registry import Registry

    registry = Registry()
    place = places.place_of(on)
    agreed = self_tested or _asked(registry, name, number)
    outcome = await running.run(registry, name, arguments, number=number, files=files, self_tested=agreed, place=place)
    if whole:
        show_json({**asdict(outcome), "ok": outcome.ok})
    else:
        _told(outcome)
    return 0 if outcome.ok else CHECK_FAILED


def _asked(registry: "Registry", name: str, number: int | None) -> bool:
    """Whether a person at a terminal agreed to run what only tested itself."""
    from hermes_exec_agent.skills.checks import SELF_TESTED

    version = registry.version(name, number)
    if version.level != SELF_TESTED or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return agrees(f"Nothing but its own tests speaks for {version.name} {version.number}. Run it?")


def _told(outcome: "Outcome") -> None:
    from hermes_exec_agent.skills.denials import SECURITY

    for line in flags.clean(outcome.logs).splitlines():
        print("".join(each if each.isprintable() or each == "\t" else "?" for each in line), file=sys.stderr)
    if outcome.ok:
        show_json(outcome.result)
    else:
        say(f"{outcome.name} {outcome.version}: {outcome.error}")
    if outcome.denied:
        say(outcome.denied)
    if outcome.declared:
        note(f"declared by the vendor, never proven: {', '.join(outcome.declared)}")
    for path in outcome.left:
        note(f"left in the sandbox: {path}")
    if outcome.quarantined:
        again = "" if outcome.kind == SECURITY else f": it failed {outcome.counts.in_a_row} times in a row"
        say(f"{outcome.name} {outcome.version} is in quarantine now{again}")
