"""Run a skill: the work of ``skill run``, and the parser of its plain command lines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.fast_args import parse_plain
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.outcome import SkillOutcome


@dataclass(frozen=True, slots=True)
class SkillRunArguments:
    """The arguments of ``skill run``."""

    name: str
    arguments: str = "{}"
    on: str | None = None
    number: int | None = None
    files: Path | None = None
    self_tested: bool = False
    whole: bool = False


_VALUES = {
    "--arguments": "arguments", "-a": "arguments", "--on": "on", "-o": "on", "--version": "number", "-V": "number",
    "--files": "files", "-f": "files",
}  # fmt: skip
_SWITCHES = {"--self-tested": ("self_tested", True), "--json": ("whole", True)}


def parse_skill_run(argv: Sequence[str]) -> SkillRunArguments | None:
    """Parse a command line if it is a plain ``skill run``."""
    parsed = None if argv[:2] != ["skill", "run"] else parse_plain(argv[2:], _VALUES, _SWITCHES, interspersed=True)
    if parsed is None or len(parsed[1]) != 1:
        return None
    options, (name,) = parsed
    if "number" in options:
        options["number"] = parse_number(options["number"])
        if options["number"] is None:
            return None
    if "files" in options:
        options["files"] = Path(options["files"])
    return SkillRunArguments(name, **options)


def prepare_skill_run(argv: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs a plain ``skill run``; None for any other command line."""
    arguments = parse_skill_run(argv)
    return None if arguments is None else lambda: run_skill(arguments)


def run_skill(arguments: SkillRunArguments) -> int:
    """Run the skill, and return the exit code.

    Raises:
        UsageError: its arguments are not a JSON object.
    """
    import json

    text = sys.stdin.read() if arguments.arguments == "-" else arguments.arguments
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--arguments: not valid JSON: {error}", remedy="""--arguments '{"name": "value"}'"""
        ) from error
    if not isinstance(given, dict):
        raise UsageError("--arguments: not a JSON object", remedy="""--arguments '{"name": "value"}'""")
    return interruptible.run(_run(arguments, given))  # pyright: ignore[reportUnknownArgumentType]  JSON


async def _run(arguments: SkillRunArguments, values: dict[str, Any]) -> int:
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run import runner, targets

    registry = Registry()
    place = targets.resolve_target(arguments.on)
    self_tested = arguments.self_tested or _confirm(registry, arguments)
    outcome = await runner.run(
        registry,
        arguments.name,
        values,
        number=arguments.number,
        files=arguments.files,
        self_tested=self_tested,
        place=place,
    )
    if arguments.whole:
        show_json({**asdict(outcome), "ok": outcome.ok})
    else:
        _print_outcome(outcome)
    return 0 if outcome.ok else CHECK_FAILED


def _confirm(registry: Registry, arguments: SkillRunArguments) -> bool:
    """Ask a user at the terminal whether to run a skill that is self-tested."""
    version = registry.version(arguments.name, arguments.number)
    if not version.self_tested or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from hermes_exec.cli.confirm import confirm

    return confirm(
        f"{version.name} {version.number} is self-tested: cases from outside do not cover all of it. Run it?"
    )


def _print_outcome(outcome: SkillOutcome) -> None:
    from hermes_exec_agent.skills.run.denials import SECURITY

    for line in flags.clean(outcome.logs).splitlines():
        print("".join(each if each.isprintable() or each == "\t" else "?" for each in line), file=sys.stderr)
    if outcome.ok:
        show_json(outcome.result)
    else:
        say(f"{outcome.name} {outcome.version}: {outcome.error}")
    if outcome.denied:
        say(outcome.denied)
    if outcome.declared:
        note(f"declared by the vendor, not proven: {', '.join(outcome.declared)}")
    for path in outcome.left:
        note(f"left in the sandbox: {path}")
    if outcome.quarantined:
        again = "" if outcome.kind == SECURITY else f": it failed {outcome.counts.in_a_row} times in a row"
        say(f"{outcome.name} {outcome.version} is in quarantine now{again}")
