"""The commands of ``skill`` at which a skill is judged or runs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import loop
from hermes_exec.cli.ask import agrees
from hermes_exec.cli.flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.say import CHECK_FAILED, note, say
from hermes_exec.cli.show import show_json
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec_agent.skills.admitting import Admitted
    from hermes_exec_agent.skills.record import Author
    from hermes_exec_agent.skills.registry import Registry
    from hermes_exec_agent.skills.running import Outcome

AGENT = "HERMES_EXEC_AGENT"
"""Set in the shells of an agent to its model: what is registered from there is the agent's."""

Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case", metavar="JSON", help='What it has to hold: {"arguments": {…}, "result": …}; may be repeated.'
    ),
]
Agent = Annotated[str | None, typer.Option("--agent", metavar="MODEL", help="An agent with this model wrote it.")]
Shells = Annotated[
    list[str] | None,
    typer.Option("--shell", metavar="TARGET", help="With --agent: a place in which it runs commands; may be repeated."),
]
Insist = Annotated[
    bool, typer.Option("--insist", help="Register it as unprotected, though its agent could have gone past the gate.")
]
Data = Annotated[
    list[str] | None, typer.Option("--data", metavar="DIR", help="Grant a folder below /app/data; may be repeated.")
]
Bounds = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=N", help="Grant a bound above the policy's: limit-memory-mib=1024, …"),
]


def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The skill: SKILL.md, scripts/, tests/.")],
    *,
    case: Cases = None,
    agent: Agent = None,
    shell: Shells = None,
    insist: Insist = False,
    data: Data = None,
    limit: Bounds = None,
    json: Json = False,
) -> int:
    """Let the gate judge a skill, and register it if it passes; the exit code is 1 if it does not.

    Cases are yours: the skill must not be made from them. Without any, it is registered as self-tested, and a person
    has to agree to each run.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    return loop.run(_add(folder, case or [], _author(agent, shell, insist=insist), data, limit, insist, json))


async def _add(
    folder: Path,
    cases: list[str],
    author: "Author",
    data: list[str] | None,
    limits: list[str] | None,
    insist: bool,  # noqa: FBT001  handed on
    json: bool,  # noqa: FBT001  handed on
) -> int:
    from hermes_exec_agent.skills.admitting import admit
    from hermes_exec_policies.gate.needs import Grants

    bounds = dict(_bound(word) for word in limits or ())
    grants = Grants(data=("/app/data", *(data or ())), limits=bounds)
    registry = _registry()
    admitted = await admit(registry, folder, author=author, grants=grants, cases=_cases(cases), insist=insist)
    return _tell(admitted, json=json)


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.")],
    *,
    arguments: Annotated[
        str,
        typer.Option("--json", metavar="ARGS", help="Its arguments, as a JSON object; - reads them from our input."),
    ] = "{}",
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
    return loop.run(_run(name, given, number, files, self_tested, whole))  # pyright: ignore[reportUnknownArgumentType]  JSON


async def _run(
    name: str,
    arguments: dict[str, Any],
    number: int | None,
    files: Path | None,
    self_tested: bool,  # noqa: FBT001  handed on
    whole: bool,  # noqa: FBT001  handed on
) -> int:
    from dataclasses import asdict

    from hermes_exec_agent.skills import running

    registry = _registry()
    agreed = self_tested or _asked(registry, name, number)
    outcome = await running.run(registry, name, arguments, number=number, files=files, self_tested=agreed)
    if whole:
        show_json({**asdict(outcome), "ok": outcome.ok})
    else:
        _told(outcome)
    return 0 if outcome.ok else CHECK_FAILED


def _asked(registry: "Registry", name: str, number: int | None) -> bool:
    """Whether a person at a terminal agreed to run what only tested itself."""
    from hermes_exec_agent.skills.running import SELF_TESTED

    version = registry.version(name, number)
    if version.level != SELF_TESTED or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return agrees(f"Nothing but its own tests speaks for {version.name} {version.number}. Run it?")


def _told(outcome: "Outcome") -> None:
    for line in flags.clean(outcome.logs).splitlines():
        print("".join(each if each.isprintable() or each == "\t" else "?" for each in line), file=sys.stderr)
    if outcome.ok:
        show_json(outcome.result)
    else:
        say(f"{outcome.name} {outcome.version}: {outcome.error}")
    if outcome.denied:
        say(outcome.denied)
    for path in outcome.left:
        note(f"left in the sandbox: {path}")
    if outcome.quarantined:
        say(
            f"{outcome.name} {outcome.version} is in quarantine now: it failed {outcome.counts.in_a_row} times in a row"
        )


def prove(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Skills; all if left out.")] = None,
    *,
    case: Cases = None,
    json: Json = False,
) -> int:
    """Let the gate judge registered skills anew, after policy, kernel or interpreter changed; 1 where one fails."""
    if case and len(names or ()) != 1:
        raise UsageError("--case is of one skill", remedy="name it")
    return loop.run(_prove(names or [], case or [], json=json))


async def _prove(names: list[str], cases: list[str], *, json: bool) -> int:
    from hermes_exec_agent.skills.admitting import prove_anew

    registry = _registry()
    chosen = names or [name for name, skill in registry.skills().items() if not skill.archived]
    codes = [
        _tell(await prove_anew(registry, registry.version(name), cases=_cases(cases)), json=json) for name in chosen
    ]
    return max(codes, default=0)


def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    *,
    number: Annotated[
        int | None, typer.Option("--version", "-V", metavar="N", help="A version; the current one if left out.")
    ] = None,
    flat: Annotated[bool, typer.Option("--flat", help="Its script alone, for reading; it is never what runs.")] = False,
) -> int:
    """Write a version to a signed file, to be imported elsewhere."""
    from hermes_exec_agent.skills import bundle

    registry = _registry()
    version = registry.version(name, number)
    (bundle.write_flat if flat else bundle.write)(registry, version, file)
    note(f"{version.name} {version.number} is in {file}, signed by {registry.signer[:16]}" if not flat else f"{file}")
    return 0


def import_bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What skill export wrote.")],
    *,
    case: Cases = None,
    insist: Insist = False,
    json: Json = False,
) -> int:
    """Take a skill from elsewhere: its signature is verified, and then the gate here judges it as any other."""
    return loop.run(_import(file, case or [], insist=insist, json=json))


async def _import(file: Path, cases: list[str], *, insist: bool, json: bool) -> int:
    from hermes_exec_agent.skills import bundle
    from hermes_exec_agent.skills.admitting import judged
    from hermes_exec_agent.skills.private import private_folder

    registry = _registry()
    author = _author(None, None, insist=insist)
    with private_folder() as folder:
        found, tree = bundle.read(registry, file, folder)
        note(
            f"{tree.root.name}: signed by {found.signer[:16]}" + (", which is this installation" if found.ours else "")
        )
        admitted = await judged(registry, tree, author=author, cases=_cases(cases), insist=insist)
    return _tell(admitted, json=json)


def _author(agent: str | None, shells: list[str] | None, *, insist: bool) -> "Author":
    import pwd

    from hermes_exec_agent.skills.record import Author

    inside = os.environ.get(AGENT)
    if shells and agent is None:
        raise UsageError("--shell says where an agent runs commands", remedy="--agent MODEL")
    if inside is not None:  # an agent speaks: what it says of itself changes nothing
        if insist:
            raise UsageError(f"--insist is a person's word, and this is the shell of an agent ({AGENT} is set)")
        return Author(kind="agent", model=inside or "unknown")
    if agent is not None:
        return Author(kind="agent", model=agent, shells=None if shells is None else tuple(shells))
    return Author(kind="person", name=pwd.getpwuid(os.geteuid()).pw_name)


def _cases(words: list[str]) -> list[Any]:
    if not words:
        return []
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.verdict import Level

    return [Case.parse(word, source=Level.PERSON) for word in words]


def _bound(word: str) -> tuple[str, int]:
    name, equals, value = word.partition("=")
    if not equals or not (value.isascii() and value.isdigit()):
        raise UsageError(f"--limit {word!r}: should be a name and a whole number", remedy="--limit limit-seconds=300")
    return name, int(value)


def _registry() -> "Registry":
    from hermes_exec_agent.skills.registry import Registry

    return Registry()


def _tell(admitted: "Admitted", *, json: bool) -> int:
    """Tell a person or a program what the gate said."""
    report, version = admitted.report, admitted.version
    if json:
        registered = {"name": version.name, "version": version.number} if version else None
        show_json({**report.facts(), "registered": registered})
    else:
        for each in report.findings:
            where = f"{each.path}:{each.line}: " if each.line else f"{each.path}: " if each.path else ""
            say(f"{each.kind}: {where}{each.operator} ({each.code})")
        if version:
            note(f"{version.name} {version.number} is registered; evidence: {version.level}, {version.protection}")
        else:
            say(f"{report.name or 'the skill'}: not registered ({report.outcome})")
    return 0 if version else CHECK_FAILED
