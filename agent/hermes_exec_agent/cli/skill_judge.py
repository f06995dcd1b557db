"""The commands of ``skill`` at which a skill is judged."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json, Number, Skill, Skills
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError
from hermes_exec_agent.cli.skill_grants import Bounds, Data, Folders, Hosts, grants_of

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.admission import Admitted
    from hermes_exec_agent.skills.registry.record import Author
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.verdict import Report


def check(  # noqa: PLR0913  each is an option
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The skill: its folder, or a tar or zip archive.")],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            help='What it must return, and leave: {"arguments": {…}, "result": …, "files": {…}}. May be repeated.',
        ),
    ] = None,
    data: Data = None,
    shared: Folders = None,
    host: Hosts = None,
    limit: Bounds = None,
    packages: Annotated[bool, typer.Option("--packages/--no-packages", help="Whether it may have packages.")] = True,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="What confines it while it is judged.")
    ] = "skill-validate",
    json: Json = False,
) -> int:
    """Judge a skill: its manifest, its text, its packages, and how it behaves in a sandbox that was proven.

    The exit code is 0 when it is accepted, 1 when it is refused, 2 when the request is wrong, and 125 when it could
    not be judged. With --json the report is the operator's: what of it a model may see is under "for_model".
    """
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such folder or archive")
    from hermes_exec.cli.interruptible import run
    from hermes_exec_policies.gate.cases import Case

    cases = [Case.parse(word) for word in case or ()]
    grants = grants_of(data, shared, host, limit, packages=packages)

    async def judge() -> int:
        from hermes_exec_policies.gate.check import check as judged

        report = await judged(folder, grants=grants, cases=cases, policy=policy)
        if json:
            show_json(report.facts() | {"for_model": report.for_model()})
        else:
            _print_report(report)
        return 0 if report.accepted else CHECK_FAILED

    return run(judge())


def _print_report(report: "Report") -> None:
    if report.findings:
        rows = [
            [str(each.kind), each.code, f"{each.path}:{each.line}" if each.line else each.path, each.operator]
            for each in report.findings
        ]
        show_table(("KIND", "CODE", "WHERE", "WHAT"), rows)
    name = report.name or "the skill"
    if not report.accepted:
        say(f"{name} is refused: {report.outcome}")
        return
    if report.evidence and report.level == "self-tested":
        note(f"{name}: nothing but its own tests speaks for it. Try: --case, with what it must return and leave")
    took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    note(f"{name} is accepted ({report.level}); {took}")


AGENT = "HERMES_EXEC_AGENT"
"""Set in the shells of an agent to its model: what is registered from there is the agent's."""

Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="JSON",
        help='What it has to hold: {"arguments": {…}, "result": …, "files": {…}}; may be repeated.',
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


def add(  # noqa: PLR0913  each is an option
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The skill: SKILL.md, scripts/, tests/.")],
    *,
    case: Cases = None,
    agent: Agent = None,
    shell: Shells = None,
    insist: Insist = False,
    data: Data = None,
    shared: Folders = None,
    host: Hosts = None,
    limit: Bounds = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="What confines it, while it is judged and when it runs.")
    ] = "skill-validate",
    json: Json = False,
) -> int:
    """Let the gate judge a skill, and register it if it passes; the exit code is 1 if it does not.

    Cases are yours: the skill must not be made from them. Without any, it is registered as self-tested, and a person
    has to agree to each run.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    grants = grants_of(data, shared, host, limit)
    author = _author(agent, shell, insist=insist)
    return interruptible.run(_add(folder, case or [], author, grants, policy, insist=insist, json=json))


async def _add(
    folder: Path, cases: list[str], author: "Author", grants: "Grants", policy: str, *, insist: bool, json: bool
) -> int:
    from hermes_exec_agent.skills.registry.admission import admit

    registry = _registry()
    admitted = await admit(
        registry, folder, author=author, grants=grants, cases=_cases(cases), insist=insist, policy=policy
    )
    return _print_admission(admitted, json=json)


def prove(
    names: Skills = None,
    *,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those whose policy, kernel or interpreter is another one now.")
    ] = False,
    case: Cases = None,
    json: Json = False,
) -> int:
    """Let the gate judge registered skills anew, after policy, kernel or interpreter changed; 1 where one fails."""
    if case and len(names or ()) != 1:
        raise UsageError("--case is of one skill", remedy="name it")
    return interruptible.run(_prove(names or [], case or [], changed=changed, json=json))


async def _prove(names: list[str], cases: list[str], *, changed: bool, json: bool) -> int:
    from hermes_exec_agent.skills.registry.admission import prove_anew
    from hermes_exec_agent.skills.run.preconditions import is_as_proven

    registry = _registry()
    chosen = names or [name for name, skill in registry.skills().items() if not skill.archived]
    versions = [registry.version(name) for name in chosen]
    codes = [
        _print_admission(await prove_anew(registry, version, cases=_cases(cases)), json=json)
        for version in versions
        if not changed or not is_as_proven(version)
    ]
    if changed and not codes:
        note("all of them are as they were proven")
    return max(codes, default=0)


def export(
    name: Skill,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    *,
    number: Number = None,
    flat: Annotated[bool, typer.Option("--flat", help="Its script alone, for reading; it is never what runs.")] = False,
) -> int:
    """Write a version to a signed file, to be imported elsewhere."""
    from hermes_exec_agent.skills.registry import bundle

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
    data: Data = None,
    shared: Folders = None,
    host: Hosts = None,
    limit: Bounds = None,
    json: Json = False,
) -> int:
    """Take a skill from elsewhere: its signature is verified, and then the gate here judges it as any other.

    What it was granted there is not granted here.
    """
    grants = grants_of(data, shared, host, limit)
    return interruptible.run(_import(file, case or [], grants, insist=insist, json=json))


async def _import(file: Path, cases: list[str], grants: "Grants", *, insist: bool, json: bool) -> int:
    from hermes_exec_agent.skills.registry import bundle
    from hermes_exec_agent.skills.registry.admission import judged
    from hermes_exec_agent.skills.registry.content import private_folder

    registry = _registry()
    author = _author(None, None, insist=insist)
    with private_folder() as folder:
        found, tree = bundle.read(registry, file, folder)
        note(
            f"{tree.root.name}: signed by {found.signer[:16]}" + (", which is this installation" if found.ours else "")
        )
        admitted = await judged(registry, tree, author=author, grants=grants, cases=_cases(cases), insist=insist)
    return _print_admission(admitted, json=json)


def _author(agent: str | None, shells: list[str] | None, *, insist: bool) -> "Author":
    import pwd

    from hermes_exec_agent.skills.registry.record import Author

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


def _registry() -> "Registry":
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.registry.script_copies import modules_folder

    return Registry(modules=modules_folder(os.environ))


def _print_admission(admitted: "Admitted", *, json: bool) -> int:
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
