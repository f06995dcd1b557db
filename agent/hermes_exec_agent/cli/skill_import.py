"""``skill import``: skills from a folder, an archive, a git repository or a bundle."""

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.confirm import confirm
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.skill_grants import Bounds, Data, Folders, Hosts, parse_grants
from hermes_exec_agent.cli.skill_judge import (
    Cases,
    Insist,
    get_author,
    open_registry,
    parse_cases,
    print_findings,
    print_registered,
)

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.admission import AdmissionResult
    from hermes_exec_agent.skills.registry.record import Author, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.registry.sources import SkillSource
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report


def import_skills(  # noqa: PLR0913  each is an option
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, an archive, a bundle, or git+https://HOST/PATH[@REV][#subdirectory=DIR].",
        ),
    ],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Skills of the source.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Import all skills of the source.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to updates of registered skills.")] = False,
    case: Cases = None,
    insist: Insist = False,
    data: Data = None,
    shared: Folders = None,
    host: Hosts = None,
    limit: Bounds = None,
    json: Json = False,
) -> int:
    """Import skills. Each may be read as a guide, and has further rights if it earns them.

    An update of a registered skill is shown as a diff and asked for; trust and grants do not carry over. If one of the
    chosen skills is refused, nothing is imported, and the exit code is 1. --case and the grants are for functions.
    """
    from hermes_exec_agent.skills.registry.content import private_folder
    from hermes_exec_agent.skills.registry.sources import open_source

    if yes:
        refuse_agent("--yes")
    author = get_author(None, None, insist=insist)
    registry = open_registry()
    registry.prepare()
    grants = parse_grants(data, shared, host, limit)
    with private_folder() as work:
        opened = open_source(source, work, registry)
        chosen = opened.choose(names or [], everything=everything)
        if case and len(chosen) != 1:
            raise UsageError("--case applies to one skill", remedy="name the skill")
        if opened.signer:
            note(f"{chosen[0]}: signed by {opened.signer[:16]}; its evidence and its grants do not count here")
        trees = _copy(opened, chosen, work)
        if trees is None:
            return CHECK_FAILED
        fresh = _agree(registry, opened, trees, yes=yes, json=json)
        if not fresh:
            if json:
                show_json([])
            return 0
        return interruptible.run(
            _register(registry, opened, fresh, author, grants, case or [], insist=insist, json=json)
        )


def _copy(opened: "SkillSource", chosen: list[str], work: Path) -> "list[Tree] | None":
    """Return private copies of the chosen skills, or None after printing why one was refused."""
    from hermes_exec_policies.gate.verdict import SkillRefused

    (into := work / "chosen").mkdir(mode=0o755)
    trees: list[Tree] = []
    for number, name in enumerate(chosen):
        (folder := into / str(number)).mkdir(mode=0o755)
        try:
            trees.append(opened.copy(name, folder))
        except SkillRefused as error:
            print_findings(error.findings)
            say(f"{name}: refused; nothing was imported")
            return None
    return trees


def _agree(
    registry: "Registry", opened: "SkillSource", trees: "list[Tree]", *, yes: bool, json: bool
) -> "dict[Tree, int | None]":
    """Return the copies that are new, after a person agreed to each update of a registered skill.

    Each has the version that it replaces, 0 for a new skill; None if that version is pinned or archived.

    Raises:
        UsageError: an update needs an answer, and there is no terminal.
    """
    fresh: dict[Tree, int | None] = {}
    for tree in trees:
        skill = registry.skills().get(tree.root.name)
        version = registry.read_version(skill) if skill is not None else None
        if version is not None and version.digest == tree.digest:
            archived = "; it is archived" if skill is not None and skill.archived else ""
            note(f"{version.name} {version.number} has the same files already{archived}")
            continue
        if version is not None and not yes:
            if not json:
                show_update(registry, version, tree)
            if not sys.stdin.isatty():
                raise UsageError(
                    f"{version.name} {version.number} ({version.origin.describe()}) would be updated, "
                    "and there is no terminal to ask at; nothing was imported",
                    remedy="--yes",
                )
            if not confirm(f"Update {version.name} {version.number} ({version.origin.describe()}) from "
                           f"{opened.origin.source}? Trust and grants do not carry over."):  # fmt: skip
                note(f"{version.name} {version.number} stays the current version")
                continue
        fresh[tree] = 0
        if skill is not None:
            fresh[tree] = None if skill.pinned or skill.archived else skill.current
    return fresh


async def _register(
    registry: "Registry",
    opened: "SkillSource",
    trees: "dict[Tree, int | None]",
    author: "Author",
    grants: "Grants",
    cases: list[str],
    *,
    insist: bool,
    json: bool,
) -> int:
    """Judge all skills before the first of them is registered."""
    from hermes_exec_agent.skills.registry import guides
    from hermes_exec_agent.skills.registry.admission import AdmissionResult, create_unconfined_error

    lacking = "" if author.is_confined or insist else create_unconfined_error(author).what
    reports = [
        await guides.judge_tree(registry, tree, lacking=lacking, grants=grants, cases=parse_cases(cases))
        for tree in trees
    ]
    passed = all(report.accepted for report in reports)
    registered = [AdmissionResult(report, None) for report in reports]
    if passed:
        registered = _record(registry, opened, dict(zip(trees, reports, strict=True)), trees, author, insist=insist)
    if json:
        show_json([_describe(each.report.facts(), each.version) for each in registered])
        return 0 if passed else CHECK_FAILED
    for tree, each in zip(trees, registered, strict=True):
        if each.version is not None:
            print_registered(each)
            note(f"{each.version.name}: models read it as material. Try: hermes-exec skill trust {each.version.name}")
        elif not each.report.accepted:
            print_findings(each.report.findings)
            say(f"{tree.root.name}: refused ({each.report.outcome})")
    if not passed:
        say("nothing was imported")
    return 0 if passed else CHECK_FAILED


def _record(
    registry: "Registry",
    opened: "SkillSource",
    reports: "dict[Tree, Report]",
    bases: "dict[Tree, int | None]",
    author: "Author",
    *,
    insist: bool,
) -> "list[AdmissionResult]":
    """Register accepted skills one after the other; an error names those that were registered before it."""
    from hermes_exec_agent.skills.registry import guides
    from hermes_exec_agent.skills.registry.admission import AdmissionResult

    found: list[AdmissionResult] = []
    try:
        for tree, report in reports.items():
            version = guides.record(
                registry, tree, report, author=author, origin=opened.origin, insist=insist, replaces=bases[tree]
            )
            found.append(AdmissionResult(report, version))
    except HermesError:
        if found:
            note(f"imported before the error: {', '.join(each.report.name for each in found)}")
        raise
    return found


def _describe(report: dict[str, Any], version: "Version | None") -> dict[str, Any]:
    return {**report, "registered": {"name": version.name, "version": version.number} if version else None}


def show_update(registry: "Registry", version: "Version", tree: "Tree") -> None:
    """Print the differences of a private copy from a registered version as a diff."""
    before, after = ({each.path: each for each in files} for files in (version.files, tree.files))
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old and new and old.sha256 == new.sha256:
            print(f"mode of {path}: {old.mode:04o} -> {new.mode:04o}")
            continue
        texts = (read_lines(registry.tree(version) / path), read_lines(tree.root / path))
        print_diff(*texts, f"{version.number}/{path}", f"new/{path}")


def print_diff(old: list[str], new: list[str], old_name: str, new_name: str) -> None:
    """Print a unified diff; unprintable characters become ``?``."""
    for line in difflib.unified_diff(old, new, old_name, new_name, lineterm=""):
        print("".join(each if each.isprintable() else "?" for each in line.replace("\t", "    ")))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist, and its size if it is not text."""
    if not path.exists():
        return []
    data = path.read_bytes()
    if b"\0" in data:
        return [f"(binary, {len(data)} bytes)"]
    return data.decode("utf-8", "replace").splitlines()
