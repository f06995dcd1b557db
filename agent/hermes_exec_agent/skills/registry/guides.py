"""Register skills as guides: text that a model reads, and scripts that run in a sandbox of their own.

The whole gate judges a skill that is a function, too. One that does not pass is a guide, with advice that says why it
cannot be called.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry.admission import AdmissionResult, create_unconfined_error, judge
from hermes_exec_agent.skills.registry.content import private_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Author, Origin, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report


async def register_guide(
    registry: Registry,
    source: Path | Tree,
    *,
    author: Author,
    origin: Origin,
    scripts: bool = True,
    grants: Grants | None = None,
) -> AdmissionResult:
    """Copy a skill once, judge the copy, and register it with the rights that it earns.

    Args:
        registry: where it is registered.
        source: the folder, whose name is the skill's; a Tree is a private copy already, and is not copied.
        author: of the text.
        origin: of the text; one from untrusted material waits in quarantine for a person.
        scripts: prove the sandbox of scripts, so that they can earn their right.
        grants: of a function; of a guide, a person grants them later.

    Raises:
        Refused: the registry cannot be trusted.
        SkillRefused: the folder holds links, devices, invalid names, or too much.
        OSError: it cannot be read.
        HermesError: a check failed; nothing was registered.
    """
    from hermes_exec_policies.gate.tree import Tree, copy_tree

    lacking = "" if author.is_confined else create_unconfined_error(author).what
    with private_folder() as folder:
        name = "" if isinstance(source, Tree) else os.path.basename(os.path.realpath(source))  # noqa: ASYNC240, PTH119  one system call
        tree = source if isinstance(source, Tree) else copy_tree(source, folder / name)
        report = await judge_tree(registry, tree, lacking=lacking, scripts=scripts, grants=grants)
        if not report.accepted:
            return AdmissionResult(report, None)
        version = record(registry, tree, report, author=author, origin=origin)
        return AdmissionResult(report, version)


async def judge_tree(
    registry: Registry,
    tree: Tree,
    *,
    lacking: str = "",
    scripts: bool = True,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
) -> Report:
    """Return the gate's report on a private copy of a skill; nothing is registered.

    ``lacking`` is the reason why the skill cannot be called, whatever its function does; empty if there is none.
    """
    from hermes_exec_policies.gate.guide import check_guide
    from hermes_exec_policies.gate.verdict import advice

    if is_function(tree) and not lacking:
        try:
            report = await judge(registry, tree, grants=grants, cases=cases)
        except HermesError as error:  # there is no sandbox here
            lacking = error.what
        else:
            if report.accepted or report.security:
                return report
            lacking = "; ".join(report.reasons[:3])
    taken = registry.skills().keys() - {tree.root.name}
    report = await check_guide(tree, taken=taken, scripts=scripts)
    if lacking and is_function(tree):
        why = advice("call.not-earned", f"it cannot be called as a function: {lacking}")
        report = replace(report, findings=(*report.findings, why))
    return report


def record(
    registry: Registry,
    tree: Tree,
    report: Report,
    *,
    author: Author,
    origin: Origin,
    insist: bool = False,
    replaces: int | None = None,
) -> Version:
    """Register a private copy of a skill that was accepted, under the policy of the report.

    ``replaces`` is the version that must still be the current one, 0 for a new skill.

    Raises:
        Refused: it was not accepted, the registry cannot be trusted, or another version is the current one.
        HermesError: it cannot be written; nothing was registered.
    """
    from hermes_exec_policies.load import load_policy

    if origin.kind == "imported" and not origin.digest:
        origin = replace(origin, digest=tree.digest)
    return registry.register(
        tree, report, load_policy(report.policy), author=author, kernel=platform.release(), insist=insist,
        origin=origin, replaces=replaces,
    )  # fmt: skip


def is_function(tree: Tree) -> bool:
    """Whether the whole gate judges a skill."""
    return has_function(tree.root.name, {each.path for each in tree.files})


def has_function(name: str, paths: Collection[str]) -> bool:
    """Whether a skill of this name and these files has a script that can be a function, and tests."""
    entries = {"scripts/main.py", f"scripts/{name.replace('-', '_')}.py"}
    return not entries.isdisjoint(paths) and any(path.startswith("tests/") and path.endswith(".py") for path in paths)
