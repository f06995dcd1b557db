"""From a folder to a registered version: copied once, validated by the gate, and registered as those very bytes."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions
from hermes_exec_policies.gate.verdict import FUNCTION_POLICY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Author, Origin, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The gate's report on a candidate, and the version if it was registered."""

    report: Report
    version: Version | None


async def admit(
    registry: Registry,
    source: Path,
    *,
    author: Author,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    insist: bool = False,
    policy: str = FUNCTION_POLICY,
) -> AdmissionResult:
    """Let the gate validate the skill in the folder ``source``, and register it if it passes.

    ``cases`` are arguments and results that the skill must pass and was not written from; ``insist`` is a person's
    approval of an author that could have bypassed the gate.

    Raises:
        Refused: the registry cannot be trusted, or the author may not register skills.
        HermesError: the gate or a sandbox failed; nothing was registered.
    """
    from hermes_exec_policies.gate.tree import copy_tree

    if not author.is_confined and not insist:
        raise create_unconfined_error(author)
    with private_folder() as folder:
        tree = copy_tree(source, folder / os.path.basename(os.path.realpath(source)))  # noqa: ASYNC240, PTH119  one system call
        return await validate_and_register(
            registry, tree, author=author, grants=grants, cases=cases, insist=insist, policy=policy
        )


async def validate_and_register(  # noqa: PLR0913  each by its name
    registry: Registry,
    tree: Tree,
    *,
    author: Author,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    files: Collection[str] = (),
    insist: bool = False,
    policy: str = FUNCTION_POLICY,
    origin: Origin | None = None,
) -> AdmissionResult:
    """Do the same for a private copy of a tree, which is expected to leave ``files``."""
    from hermes_exec_policies.load import load_policy

    report = await judge(registry, tree, grants=grants, cases=cases, files=files, policy=policy)
    if not report.accepted:
        return AdmissionResult(report, None)
    version = registry.register(
        tree, report, load_policy(policy), author=author, kernel=platform.release(), insist=insist, origin=origin
    )
    return AdmissionResult(report, version)


async def judge(
    registry: Registry,
    tree: Tree,
    *,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    files: Collection[str] = (),
    policy: str = FUNCTION_POLICY,
) -> Report:
    """Let the gate validate a private copy of a function; nothing is registered.

    If the current version has the same bytes, its cases are added, so that it loses no evidence.
    """
    registry.prepare()
    skill = registry.skills().get(tree.root.name)
    version = registry.read_version(skill) if skill is not None else None
    if version is not None and version.digest == tree.digest:
        cases, files = _add_recorded_cases(version, cases), {*files, *list_expected_files(version)}
    return await _gate(registry, tree, grants, cases, files, policy)


async def prove_again(registry: Registry, version: Version, *, cases: Sequence[Case] = ()) -> AdmissionResult:
    """Let the gate validate a registered version again, with the current policy, kernel and interpreter.

    Raises:
        content.Changed: its files differ from the signed list.
        HermesError: the gate or a sandbox failed; the version is unchanged.
    """
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.load import load_policy

    name = str(version.policy["name"])
    with private_folder() as folder:
        tree = folder / version.name
        content.copy_verified(registry.tree(version), version.files, tree)
        held = _add_recorded_cases(version, cases)
        files = list_expected_files(version)
        report = await _gate(registry, Tree(tree, version.files), Grants.from_facts(version.grants), held, files, name)
    if not report.accepted:
        return AdmissionResult(report, None)
    return AdmissionResult(report, registry.record_proof(version, report, load_policy(name), kernel=platform.release()))


def list_expected_files(version: Version) -> list[str]:
    """Return the files that a version is expected to leave."""
    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    return list(recorded.get("files") or ())


def _add_recorded_cases(version: Version, cases: Sequence[Case]) -> list[Case]:
    """Return the cases, and those that a version with the same bytes passed."""
    from hermes_exec_policies.gate.check import Case

    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    held = [Case.from_facts(each) for each in recorded.get("held") or ()]
    return [*cases, *(each for each in held if each not in cases)]


async def _gate(
    registry: Registry,
    tree: Tree,
    grants: Grants | None,
    cases: Sequence[Case],
    files: Collection[str],
    policy: str,
) -> Report:
    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.gate.check import check
    from hermes_exec_policies.gate.environments import Environments

    for folder in grants.folders if grants else ():
        preconditions.check_folder(registry, SharedFolder.parse_grant(folder), None if os.geteuid() else -1)
    store = Environments(registry.home.environments)
    with private_folder() as work:
        return await check(tree, grants=grants, cases=cases, files=files, policy=policy, work=work, store=store)


def create_unconfined_error(author: Author) -> Refused:
    """Return the error for an author that could have bypassed the gate."""
    who = author.model or author.name or author.kind
    return Refused(
        f"{who} runs commands on this machine without a sandbox, so it could register anything",
        remedy="give the agent a sandbox for its commands, or let a person register it with --insist",
    )
