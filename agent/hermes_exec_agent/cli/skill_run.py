"""What ``skill run`` does, and its plainest command lines, without typer, whose import takes longer than a run.

Whatever is not plain here is left to typer, which knows it all. A test holds the two against each other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.runner import Outcome


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of one ``skill run``."""

    name: str
    arguments: str = "{}"
    on: str | None = None
    number: int | None = None
    files: Path | None = None
    self_tested: bool = False
    whole: bool = False


_VALUES = {
    "--json": "arguments", "--on": "on", "-o": "on", "--version": "number", "-V": "number", "--files": "files",
    "-f": "files",
}  # fmt: skip
_FLAGS = {"--self-tested": "self_tested", "--whole": "whole", "-w": "whole"}


def spoken(words: Sequence[str]) -> Asked | None:
    """The command line, if it is a plain ``skill run``."""
    if list(words[:2]) != ["skill", "run"]:
        return None
    said: dict[str, Any] = {}
    rest = list(words[2:])
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in _FLAGS and not equals:
            said[_FLAGS[option]] = True
            continue
        if option in _VALUES:
            if _VALUES[option] in said:
                return None
            if not equals:
                if not rest or (rest[0].startswith("-") and rest[0] != "-"):
                    return None
                value = rest.pop(0)
            said[_VALUES[option]] = value
        elif word.startswith("-") or "name" in said:
            return None
        else:
            said["name"] = word
    if "number" in said:
        if not (said["number"].isascii() and said["number"].isdigit()):
            return None
        said["number"] = int(said["number"])
    if "files" in said:
        said["files"] = Path(said["files"])
    return Asked(**said) if "name" in said else None


def perform(asked: Asked) -> int:
    """Run the skill, and give the exit code.

    Raises:
        UsageError: its arguments are no JSON object.
    """
    import json

    text = sys.stdin.read() if asked.arguments == "-" else asked.arguments
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json: this is no JSON: {error}", remedy="""--json '{"name": "value"}'""") from error
    if not isinstance(given, dict):
        raise UsageError("--json: should be an object, with arguments by their names")
    return interruptible.run(_run(asked, given))  # pyright: ignore[reportUnknownArgumentType]  JSON


async def _run(asked: Asked, arguments: dict[str, Any]) -> int:
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run import runner, targets

    registry = Registry()
    place = targets.place_of(asked.on)
    agreed = asked.self_tested or _agreed(registry, asked)
    outcome = await runner.run(
        registry, asked.name, arguments, number=asked.number, files=asked.files, self_tested=agreed, place=place
    )
    if asked.whole:
        show_json({**asdict(outcome), "ok": outcome.ok})
    else:
        _tell(outcome)
    return 0 if outcome.ok else CHECK_FAILED


def _agreed(registry: Registry, asked: Asked) -> bool:
    """Whether a person at a terminal agreed to run what only tested itself."""
    version = registry.version(asked.name, asked.number)
    if not version.self_tested or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from hermes_exec.cli.confirm import agrees

    return agrees(f"Nothing but its own tests speaks for {version.name} {version.number}. Run it?")


def _tell(outcome: Outcome) -> None:
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
        note(f"declared by the vendor, never proven: {', '.join(outcome.declared)}")
    for path in outcome.left:
        note(f"left in the sandbox: {path}")
    if outcome.quarantined:
        again = "" if outcome.kind == SECURITY else f": it failed {outcome.counts.in_a_row} times in a row"
        say(f"{outcome.name} {outcome.version} is in quarantine now{again}")
