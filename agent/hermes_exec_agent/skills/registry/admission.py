"""From a folder to a registered version: copied once, judged by the gate, and registered as those very bytes."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Author, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report

POLICY = "skill-validate"


@dataclass(frozen=True, slots=True)
class Admitted:
    """What came of a candidate: the gate's report, and the version if it was registered."""

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
    policy: str = POLICY,
) -> Admitted:
    """Let the gate judge the skill in the folder ``source``, and register it if it passed.

    ``cases`` are arguments and results that it has to hold, which the skill was not made from; ``insist`` is a
    person's word for an author who could have gone past the gate.

    Raises:
        Refused: the registry cannot be trusted, or the author is not to register anything.
        HermesError: the gate, or a sandbox, could not do its part; nothing was registered.
    """
    from hermes_exec_policies.gate.tree import copy_tree

    if not author.confined and not insist:
        raise unconfined(author)
    with private_folder() as folder:
        tree = copy_tree(source, folder / os.path.basename(os.path.realpath(source)))  # noqa: ASYNC240, PTH119  a look
        return await judged(registry, tree, author=author, grants=grants, cases=cases, insist=insist, policy=policy)


async def judged(
    registry: Registry,
    tree: Tree,
    *,
    author: Author,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    files: Collection[str] = (),
    insist: bool = False,
    policy: str = POLICY,
) -> Admitted:
    """The same, for a tree of ours, which was asked to leave ``files``.

    Bytes that the current version has already are held to its cases as well, so that they lose no evidence.
    """
    from hermes_exec_policies.load import load

    registry.prepare()
    skill = registry.skills().get(tree.root.name)
    version = registry.recorded(skill) if skill is not None else None
    if version is not None and version.digest == tree.digest:
        cases, files = _with_held(version, cases), {*files, *recorded_files(version)}
    report = await _gate(registry, tree, grants, cases, files, policy)
    if not report.accepted:
        return Admitted(report, None)
    version = registry.register(tree, report, load(policy), author=author, kernel=platform.release(), insist=insist)
    return Admitted(report, version)


async def prove_anew(registry: Registry, version: Version, *, cases: Sequence[Case] = ()) -> Admitted:
    """Let the gate judge a registered version once more, with policy, kernel and interpreter as they are now.

    Raises:
        content.Changed: its files are not what was signed.
        HermesError: the gate, or a sandbox, could not do its part; the version is as it was.
    """
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.load import load

    name = str(version.policy["name"])
    with private_folder() as folder:
        tree = folder / version.name
        content.copy(registry.tree(version), version.files, tree)
        held = _with_held(version, cases)
        files = recorded_files(version)
        report = await _gate(registry, Tree(tree, version.files), Grants.of(version.grants), held, files, name)
    if not report.accepted:
        return Admitted(report, None)
    return Admitted(report, registry.proven(version, report, load(name), kernel=platform.release()))


def recorded_files(version: Version) -> list[str]:
    """The files that a version was asked to leave."""
    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    return list(recorded.get("files") or ())


def _with_held(version: Version, cases: Sequence[Case]) -> list[Case]:
    """The cases, and those that a version of these very bytes held."""
    from hermes_exec_policies.gate.check import Case

    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    held = [Case.of(each) for each in recorded.get("held") or ()]
    return [*cases, *(each for each in held if each not in cases)]


async def _gate(
    registry: Registry,
    tree: Tree,
    grants: Grants | None,
    cases: Sequence[Case],
    files: Collection[str],
    policy: str,
) -> Report:
    from hermes_exec_policies.folders import Folder
    from hermes_exec_policies.gate.check import check
    from hermes_exec_policies.gate.packages.environments import Environments

    for folder in grants.folders if grants else ():
        preconditions.given(registry, Folder.granted(folder), None if os.geteuid() else -1)
    store = Environments(registry.home.environments)
    with private_folder() as work:
        return await check(tree, grants=grants, cases=cases, files=files, policy=policy, work=work, store=store)


def unconfined(author: Author) -> Refused:
    """The error for an author who could have gone past the gate."""
    who = author.model or author.name or author.kind
    return Refused(
        f"{who} runs commands on this machine without a sandbox, so it could register anything",
        remedy="give the agent a sandbox for its commands, or let a person register it with --insist",
    )
