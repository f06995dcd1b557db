"""The commands of ``skill`` in which the gate judges a skill: check, add and prove."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.options import Skills
from hermes_exec_agent.cli.skill_grants import Bounds, Data, Folders, Hosts, parse_grants
from hermes_exec_policies.cli.options import complete_policies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_agent.skills.registry.admission import AdmissionResult
    from hermes_exec_agent.skills.registry.record import Author
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.verdict import Finding, Report


def check(  # noqa: PLR0913  each is an option
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the skill, or a tar or zip archive.")],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            help='Require this result: {"arguments": {…}, "result": …, "files": {…}}; may be repeated.',
        ),
    ] = None,
    data: Data = None,
    shared: Folders = None,
    host: Hosts = None,
    limit: Bounds = None,
    packages: Annotated[bool, typer.Option("--packages/--no-packages", help="Permit packages, or do not.")] = True,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="Judge the skill under this policy.", autocompletion=complete_policies)
    ] = "skill-validate",
    json: Json = False,
) -> int:
    """Check a skill: its manifest, its text, its packages, and its behavior in a proven sandbox.

    A folder without a function and tests is checked as a guide.

    The exit code is 0 if it is accepted, 1 if it is refused, 2 if the command line is wrong, and 125 if it could not
    be checked. The report of --json is for the operator; the part for a model is under "for_model".
    """
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such folder or archive")
    from hermes_exec_policies.gate.cases import Case
    from hermes_exec_policies.load import load_policy

    cases = [Case.parse(arg) for arg in case or ()]
    grants = parse_grants(data, shared, host, limit, packages=packages)
    load_policy(policy)  # a wrong one is an error of usage, also for a guide

    async def judge() -> int:
        from hermes_exec_policies.gate.check import check as run_gate
        from hermes_exec_policies.gate.guide import check_guide

        is_guide = folder.is_dir() and not _is_function(folder)
        judging = check_guide(folder) if is_guide else run_gate(folder, grants=grants, cases=cases, policy=policy)
        report = await judging
        if json:
            show_json(report.facts() | {"for_model": report.for_model()})
        else:
            _print_report(report)
        return 0 if report.accepted else CHECK_FAILED

    return interruptible.run(judge())


def _is_function(folder: Path) -> bool:
    """Whether the skill in a folder is judged as a function."""
    from hermes_exec_agent.skills.registry.guides import has_function

    found = [*folder.glob("scripts/*.py"), *folder.glob("tests/*.py")]
    return has_function(folder.resolve().name, {str(path.relative_to(folder)) for path in found})


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
        note(f"{name}: cases from outside do not cover every way and part of it. Try: --case, with an expected result")
    evidence = report.level or f"rights: {', '.join(report.rights)}"
    took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    note(f"{name} is accepted ({evidence}); {took}")


Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="JSON",
        help='Require this result: {"arguments": {…}, "result": …, "files": {…}}; may be repeated.',
    ),
]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="MODEL", help="Record an agent with this model as the author.")
]
Shells = Annotated[
    list[str] | None,
    typer.Option(
        "--shell", metavar="TARGET", help="With --agent: a target in which it runs commands; may be repeated."
    ),
]
Insist = Annotated[
    bool,
    typer.Option("--insist", help="Register the skill as unprotected, though its agent could have bypassed the gate."),
]


def add(  # noqa: PLR0913  each is an option
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the skill: SKILL.md, scripts/, tests/.")],
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
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Judge and run the skill under this policy.",
            autocompletion=complete_policies,
        ),
    ] = "skill-validate",
    json: Json = False,
) -> int:
    """Check a skill and register it if it passes; the exit code is 1 if it does not.

    The cases of --case must not be known to the author. Unless they need all of the function, the skill is
    registered as self-tested, and a user has to agree to each run. A folder without a function and tests is registered
    as a guide.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    grants = parse_grants(data, shared, host, limit)
    author = get_author(agent, shell, insist=insist)
    return interruptible.run(_add(folder, case or [], author, grants, policy, insist=insist, json=json))


async def _add(
    folder: Path, cases: list[str], author: "Author", grants: "Grants", policy: str, *, insist: bool, json: bool
) -> int:
    from hermes_exec_agent.skills.registry.admission import admit
    from hermes_exec_agent.skills.registry.guides import register_guide
    from hermes_exec_agent.skills.registry.record import Origin

    registry = open_registry()
    if _is_function(folder):
        admitted = await admit(
            registry, folder, author=author, grants=grants, cases=parse_cases(cases), insist=insist, policy=policy
        )
    elif cases:
        raise UsageError(f"{folder} is a guide: it has no function with tests, so no case applies")
    else:
        # The shell of an agent does not know what the agent read before.
        origin = Origin(kind="person" if author.kind == "person" else "untrusted")
        admitted = await register_guide(registry, folder, author=author, origin=origin)
    return _print_admission(admitted, json=json)


def prove(
    names: Skills = None,
    *,
    changed: Annotated[
        bool, typer.Option("--changed", help="Check only skills whose policy, kernel or interpreter has changed.")
    ] = False,
    case: Cases = None,
    json: Json = False,
) -> int:
    """Check registered skills again, after a change of policy, kernel or interpreter; exit with 1 if one fails."""
    if case and len(names or ()) != 1:
        raise UsageError("--case applies to one skill", remedy="name the skill")
    return interruptible.run(_prove(names or [], case or [], changed=changed, json=json))


async def _prove(names: list[str], cases: list[str], *, changed: bool, json: bool) -> int:
    from hermes_exec_agent.skills.registry.admission import prove_again
    from hermes_exec_agent.skills.run.preconditions import is_as_proven

    registry = open_registry()
    chosen = names or [name for name, skill in registry.skills().items() if not skill.archived]
    versions = [registry.version(name) for name in chosen]
    if guides := [version.name for version in versions if not version.is_function and names]:
        raise UsageError(f"{guides[0]} is a guide: it has no function that can be proven")
    versions = [version for version in versions if version.is_function]
    codes = [
        _print_admission(await prove_again(registry, version, cases=parse_cases(cases)), json=json)
        for version in versions
        if not changed or not is_as_proven(version)
    ]
    if not codes:
        note("no skill has to be checked again" if changed else "no skill has a function that can be proven")
    for version in versions:
        if version.number in registry.skill(version.name).waiting:
            note(f"{version.name} {version.number} waits for a person: hermes-exec skill release {version.name}")
    return max(codes, default=0)


def get_author(agent: str | None, shells: list[str] | None, *, insist: bool) -> "Author":
    """Return the author of a skill that this command registers.

    Raises:
        UsageError: an agent's shell calls with an option of a user, or the options contradict.
    """
    import pwd

    from hermes_exec_agent.agent_shell import AGENT
    from hermes_exec_agent.skills.registry.record import Author

    inside = os.environ.get(AGENT)
    if shells and agent is None:
        raise UsageError("--shell needs --agent", remedy="--agent MODEL")
    if inside is not None:  # an agent calls, so options do not change the author
        if insist:
            refuse_agent("--insist")
        return Author(kind="agent", model=inside or "unknown")
    if agent is not None:
        return Author(kind="agent", model=agent, shells=None if shells is None else tuple(shells))
    return Author(kind="person", name=pwd.getpwuid(os.geteuid()).pw_name)


def parse_cases(args: list[str]) -> list[Any]:
    """Return the cases of --case."""
    if not args:
        return []
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.verdict import Level

    return [Case.parse(arg, source=Level.PERSON) for arg in args]


def open_registry() -> "Registry":
    """Open this user's registry, with its folder for copies of scripts."""
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.registry.script_copies import modules_folder

    return Registry(modules=modules_folder(os.environ))


def _print_admission(admitted: "AdmissionResult", *, json: bool) -> int:
    """Print the report of the gate, and return the exit code."""
    report, version = admitted.report, admitted.version
    if json:
        registered = {"name": version.name, "version": version.number} if version else None
        show_json({**report.facts(), "registered": registered})
    else:
        print_registered(admitted)
    return 0 if version else CHECK_FAILED


def print_registered(admitted: "AdmissionResult") -> None:
    """Print the findings about a skill, and whether it is registered."""
    report, version = admitted.report, admitted.version
    print_findings(report.findings)
    if version is None:
        say(f"{report.name or 'the skill'}: not registered ({report.outcome})")
        return
    evidence = f"; evidence: {version.level}, {version.protection}" if version.is_function else ""
    note(f"{version.name} {version.number} is registered; rights: {', '.join(version.rights)}{evidence}")


def print_findings(findings: "Iterable[Finding]") -> None:
    """Print findings, one in a line."""
    for each in findings:
        where = f"{each.path}:{each.line}: " if each.line else f"{each.path}: " if each.path else ""
        say(f"{each.kind}: {where}{each.operator} ({each.code})")
