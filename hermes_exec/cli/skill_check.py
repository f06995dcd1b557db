"""``skill check``: judge a skill, and register nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli.options import Json
from hermes_exec.cli.say import CHECK_FAILED, note, say
from hermes_exec.cli.show import show_json, show_table
from hermes_exec.cli.skill_grants import Bounds, Data, Folders, Hosts, grants_of
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
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
    from hermes_exec.cli.loop import run
    from hermes_exec_policies.gate.cases import Case

    cases = [Case.parse(word) for word in case or ()]
    grants = grants_of(data, shared, host, limit, packages=packages)

    async def judge() -> int:
        from hermes_exec_policies.gate.check import check as judged

        report = await judged(folder, grants=grants, cases=cases, policy=policy)
        if json:
            show_json(report.facts() | {"for_model": report.for_model()})
        else:
            _tell(report)
        return 0 if report.accepted else CHECK_FAILED

    return run(judge())


def _tell(report: "Report") -> None:
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
