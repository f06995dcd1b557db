"""From a folder to a registered version: copied once, judged by the gate, and registered as those very bytes."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Refused
from hermes_exec_agent.skills import checks, content
from hermes_exec_agent.skills.private import private_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.record import Author, Version
    from hermes_exec_agent.skills.registry import Registry
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.needs import Grants
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
    insist: bool = False,
    policy: str = POLICY,
) -> Admitted:
    """The same, for a tree of ours.

    Bytes that the current version has already are held to its cases as well, so that they lose no evidence.
    """
    from hermes_exec_policies.load import load

    registry.prepare()
    cases = [*cases, *(each for each in _held(registry, tree) if each not in cases)]
    report = await _gate(registry, tree, grants, cases, policy)
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
    from hermes_exec_policies.gate.needs import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.load import load

    name = str(version.policy["name"])
    with private_folder() as folder:
        tree = folder / version.name
        content.copy(registry.tree(version), version.files, tree)
        report = await _gate(registry, Tree(tree, version.files), Grants.of(version.grants), cases, name)
    if not report.accepted:
        return Admitted(report, None)
    return Admitted(report, registry.proven(version, report, load(name), kernel=platform.release()))


def _held(registry: Registry, tree: Tree) -> list[Case]:
    """The cases that the current version held, where it is of these very bytes."""
    from hermes_exec_policies.gate.check import Case

    skill = registry.skills().get(tree.root.name)
    if skill is None:
        return []
    version = registry.recorded(skill)
    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    return [Case.of(each) for each in recorded.get("held") or ()] if version.digest == tree.digest else []


async def _gate(registry: Registry, tree: Tree, grants: Grants | None, cases: Sequence[Case], policy: str) -> Report:
    from hermes_exec_policies.folders import Folder
    from hermes_exec_policies.gate.check import check
    from hermes_exec_policies.gate.packages.environments import Environments

    for folder in grants.folders if grants else ():
        checks.given(registry, Folder.granted(folder), None if os.geteuid() else -1)
    store = Environments(registry.home.environments)
    with private_folder() as work:
        return await check(tree, grants=grants, cases=cases, policy=policy, work=work, store=store)


def unconfined(author: Author) -> Refused:
    """The error for an author who could have gone past the gate."""
    who = author.model or author.name or author.kind
    return Refused(
        f"{who} runs commands on this machine without a sandbox, so it could register anything",
        remedy="give the agent a sandbox for its commands, or let a person register it with --insist",
    )
