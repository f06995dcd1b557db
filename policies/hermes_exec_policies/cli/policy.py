"""``policy``: list, explain, compare, render, check and prove policies."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli.completion.values import complete_targets
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_policies.cli.options import complete_policies

if TYPE_CHECKING:
    from hermes_exec_policies.explain import RuleStatus
    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.model import Policy

Name = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="The name of a policy, or a .toml file.", autocompletion=complete_policies),
]
In = Annotated[str, typer.Option("--in", "-i", metavar="KIND", help="The backend: bubblewrap, docker, singularity, …")]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/security.md.")
    for command in (list_policies, show, explain, diff, render, check, prove):
        group.command(command.__name__.partition("_")[0])(command)
    app.add_typer(group, name=name, short_help=summary)


def list_policies(*, json: Json = False) -> int:
    """List the policies: the built-in ones, and those in the folder of your hermes.toml."""
    from hermes_exec_policies.load import list_policies, list_shipped_policies, load_policy

    rows = [
        [name, "ships" if name in list_shipped_policies() else "yours", load_policy(name).summary]
        for name in list_policies()
    ]
    if json:
        show_json([dict(zip(("name", "from", "about"), row, strict=True)) for row in rows])
    else:
        show_table(("NAME", "FROM", "ABOUT"), rows)
    return 0


def show(policy: Name, *, json: Json = False) -> int:
    """Show all values of a policy, inherited ones included."""
    from hermes_exec_policies.load import flatten, load_policy

    found = load_policy(policy)
    values = found.model_dump(mode="json")
    if json:
        show_json({**values, "digest": found.digest})
        return 0
    rows = [[key, _format(value)] for key, value in flatten(values).items()]
    show_table(("KEY", "VALUE"), [*rows, ["digest", found.digest]])
    return 0


def explain(
    policy: Name,
    *,
    place: In = "bubblewrap",
    folder: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:rw]", help="Add a folder that a skill was granted; may be repeated."),
    ] = None,
    json: Json = False,
) -> int:
    """Explain the rules of a policy, and list the mechanisms that enforce each on this machine."""
    from hermes_exec_backends.sandbox.host import this_machine
    from hermes_exec_policies.explain import explain_policy as verdicts_of
    from hermes_exec_policies.folders import with_folders
    from hermes_exec_policies.load import load_policy

    found = with_folders(load_policy(policy), [_parse_folder(arg) for arg in folder or ()])
    verdicts = verdicts_of(found, place, this_machine())
    if json:
        show_json(
            {
                "policy": found.name,
                "digest": found.digest,
                "place": place,
                "host": this_machine().facts(),
                "refused": any(verdict.refuses for verdict in verdicts),
                "rules": [verdict.facts() for verdict in verdicts],
            }
        )
        return 0
    print(f"{found.summary}.")
    if not verdicts:
        print("The policy has no rules, so it confines nothing.")
        return 0
    show_table(("RULE", "STRENGTH", "ENFORCED BY", "MEANING"), [_row(verdict) for verdict in verdicts])
    _print_gaps(found, place, verdicts)
    return 0


def _parse_folder(arg: str) -> "SharedFolder":
    from hermes_exec_policies.folders import SharedFolder

    try:
        return SharedFolder.parse_request(arg)
    except ValueError as error:
        raise UsageError(f"--folder {error}", remedy="--folder invoices, or --folder archive:rw") from None


def _row(verdict: "RuleStatus") -> list[str]:
    held = "; ".join(verdict.held_by) or "nothing"
    return [verdict.rule, verdict.strength.replace("_", " "), held, verdict.says]


def _print_gaps(policy: "Policy", place: str, verdicts: "list[RuleStatus]") -> None:
    gaps = [verdict for verdict in verdicts if not verdict.held_by]
    for verdict in gaps:
        for means in verdict.lacking:
            note(
                f"{verdict.rule}: {means.mechanism}: {means.lacking}"
                + (f". Try: {means.remedy}" if means.remedy else "")
            )
    refusing = [verdict.rule for verdict in gaps if verdict.refuses]
    if refusing:
        note(f"{place} refuses {policy.name} here, because nothing can enforce: {', '.join(refusing)}")


def diff(
    policy: Name,
    other: Annotated[
        str,
        typer.Argument(metavar="OTHER", help="The policy to compare it with.", autocompletion=complete_policies),
    ],
    *,
    json: Json = False,
) -> int:
    """List the values in which two policies differ."""
    from hermes_exec_policies.load import diff_policies, load_policy

    one, two = load_policy(policy), load_policy(other)
    found = list(diff_policies(one, two))
    if json:
        show_json([{"key": key, one.name: left, two.name: right} for key, left, right in found])
    elif found:
        show_table(("KEY", one.name, two.name), [[key, _format(left), _format(right)] for key, left, right in found])
    else:
        note("the policies are equal")
    return 0


def render(
    policy: Name,
    *,
    form: Annotated[
        str | None,
        typer.Option("--form", "-f", metavar="FORM", help="Print this form; by default, list the forms."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-O", metavar="DIR", help="Write every form to this folder.")
    ] = None,
    json: Json = False,
) -> int:
    """Render a policy as seccomp, AppArmor, Landlock, limits, and options of each backend."""
    from hermes_exec_policies.load import load_policy
    from hermes_exec_policies.render.forms import render_all, render_form

    found = load_policy(policy)
    if form is not None:
        text = render_form(found, form)
        if json:
            show_json({"policy": found.name, "form": form, "text": text})
        else:
            sys.stdout.write(text)
        return 0
    texts = render_all(found)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (output / name).write_text(text, encoding="utf-8")
        note(f"{output}: {len(texts)} files written")
    if json:
        show_json(texts)
    elif output is None:
        show_table(("FORM", "BYTES"), [[name, str(len(text.encode()))] for name, text in texts.items()])
    return 0


def check(
    policies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[POLICY]...",
            help="Names or files; by default every named policy.",
            autocompletion=complete_policies,
        ),
    ] = None,
    *,
    place: Annotated[
        str | None,
        typer.Option("--in", "-i", metavar="KIND", help="Also check whether this backend can enforce them here."),
    ] = None,
    json: Json = False,
) -> int:
    """Check policies and print all problems.

    The exit code is 2 if a policy is invalid, and 1 if one cannot be enforced.
    """
    from hermes_exec_backends.sandbox.host import this_machine
    from hermes_exec_policies.explain import explain_policy as verdicts_of
    from hermes_exec_policies.load import list_policies, load_policy

    found = [load_policy(name) for name in policies or list_policies()]
    gaps = {
        policy.name: [verdict.rule for verdict in verdicts_of(policy, place, this_machine()) if verdict.refuses]
        for policy in (found if place else [])
        if place
    }
    if json:
        show_json({"policies": [policy.name for policy in found], "not enforceable": gaps})
    else:
        for name, rules in gaps.items():
            note(
                f"{name}: {place} refuses it here, because nothing can enforce: {', '.join(rules)}"
                if rules
                else f"{name}: enforceable"
            )
        note(f"no problems: {', '.join(policy.name for policy in found)}")
    return CHECK_FAILED if any(gaps.values()) else 0


def prove(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="bubblewrap, docker:IMAGE, singularity:IMAGE, or a profile of these.",
            autocompletion=complete_targets,
        ),
    ],
    *,
    policy: Annotated[
        str,
        typer.Option("--policy", "-p", metavar="POLICY", help="The policy to prove.", autocompletion=complete_policies),
    ],
    json: Json = False,
) -> int:
    """Try to break every rule of a policy in a new probe sandbox, and print the verdict of each attempt.

    The exit code is 1 if a rule does not hold, or if the attempts prove nothing.
    """
    import asyncio

    from hermes_exec.cli.open_target import read_settings
    from hermes_exec_policies.canaries.prove import gather_evidence
    from hermes_exec_policies.load import load_policy
    from hermes_exec_policies.start_program import parse_sandbox_target

    evidence = asyncio.run(
        gather_evidence(parse_sandbox_target(target, read_settings().profiles), load_policy(policy), again=True)
    )
    if json:
        show_json(evidence.facts())
        return 0 if evidence.holds else CHECK_FAILED
    show_table(
        ("ATTEMPT", "RULE", "VERDICT", "END"),
        [[each.name, each.rule, each.verdict.value, each.ended] for each in evidence.proof.judged],
    )
    kernel, versions = evidence.host["kernel"], evidence.host["versions"]
    print(f"policy {evidence.policy} {evidence.digest[:16]}, specification {evidence.specification[:16]}")
    print(f"kernel {kernel}, " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"mechanisms proven alone: {', '.join(evidence.proof.layers)}")
    held = sum(each.verdict.value == "held" for each in evidence.proof.judged)
    print(f"{evidence.verdict}: {held} of {len(evidence.proof.judged)} attempts held ({evidence.seconds:.1f} s)")
    if not evidence.holds:
        say(evidence.refusal().what)
    return 0 if evidence.holds else CHECK_FAILED


def _format(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value))) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in cast("dict[str, object]", value).items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unlimited" if value is None else str(value)
