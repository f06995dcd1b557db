"""The commands of ``skill`` with which a person trusts a skill's text and grants rights to its scripts."""

import re
from typing import Annotated

import typer

from hermes_exec.cli.console import note
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.options import Number, Skill
from hermes_exec_agent.cli.skill_grants import Folders, Hosts, parse_grants
from hermes_exec_agent.cli.skill_judge import open_registry

_INTERPRETER = re.compile(r"[a-z][a-z0-9.+-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?")


def trust(
    name: Skill,
    *,
    number: Number = None,
    remove: Annotated[bool, typer.Option("--remove", "-r", help="Trust this version no longer.")] = False,
) -> int:
    """Let models follow the text of this version; the next version has to be trusted again.

    Without it, models read an imported text as material, and its acts ask for approval again.
    """
    refuse_agent("trust")
    version = open_registry().trust(name, number, trusted=not remove)
    state = "is not trusted any more" if remove else "is trusted"
    note(f"{version.name} {version.number} {state} ({version.origin.describe()}, SHA-256 {version.digest[:16]})")
    return 0


def grant(
    name: Skill,
    *,
    unsandboxed: Annotated[
        bool,
        typer.Option("--unsandboxed", help="Let scripts run where the conversation's commands run; each run asks."),
    ] = False,
    interpreter: Annotated[
        list[str] | None,
        typer.Option("--interpreter", metavar="PROGRAM", help="Grant another interpreter, as node; may be repeated."),
    ] = None,
    host: Hosts = None,
    shared: Folders = None,
    remove: Annotated[
        bool, typer.Option("--remove", "-r", help="Remove the named grants, or all if none is named.")
    ] = False,
    number: Number = None,
) -> int:
    """Grant rights to the scripts of this version, in addition to earlier grants; the next version has none of them."""
    from hermes_exec_agent.skills.registry.record import ScriptGrants

    refuse_agent("grant")
    registry = open_registry()
    skill = registry.skill(name)
    version = registry.read_version(skill, number)
    asked = ScriptGrants(
        unsandboxed=unsandboxed,
        interpreters=tuple(_check_interpreter(each) for each in interpreter or ()),
        hosts=tuple(_check_host(each) for each in host or ()),
        folders=_parse_folders(shared, exist=not remove),
    )
    if not remove and asked == ScriptGrants():
        raise UsageError("nothing is granted", remedy="--unsandboxed, --interpreter, --host, --folder, or --remove")
    before = skill.script_grants.get(version.digest, ScriptGrants())
    if remove:
        after = ScriptGrants() if asked == ScriptGrants() else before.remove(asked)
    else:
        after = before.add(asked)
        if exposed := registry.home.find_exposed(each.partition("=")[2].removesuffix(":rw") for each in after.folders):
            raise Refused(f"the folder {exposed} holds the registry or its key, or lies in it")
    if after != before:
        registry.grant_scripts(name, after, version.number)
    note(f"{version.name} {version.number}: its scripts have {after.describe()}")
    return 0


def _parse_folders(shared: list[str] | None, *, exist: bool) -> tuple[str, ...]:
    """Return the folders of --folder; when they are removed, a name alone suffices."""
    if exist:
        return parse_grants(None, shared, None, None).folders
    return tuple(shared or ())


def _check_interpreter(word: str) -> str:
    if not _INTERPRETER.fullmatch(word):
        raise UsageError(f"--interpreter {word[:40]!a} is not the name of a program", remedy="--interpreter node")
    return word


def _check_host(word: str) -> str:
    from hermes_exec_policies.egress.proxy import parse_hosts

    if not _HOST.fullmatch(word):
        raise UsageError(f"--host {word[:80]!a} is not the name of a host", remedy="--host api.example.org:443")
    parse_hosts([word])
    return word
