"""Register skills as guides: text that a model reads, and scripts that run in a sandbox of their own.

A skill that is a function, too, passes the whole gate. If it does not, it is a guide, with advice that says why it cannot
be called.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry.admission import AdmissionResult, validate_and_register
from hermes_exec_agent.skills.registry.content import private_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Author, Origin
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.check import Case
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import Tree


async def register_guide(
    registry: Registry,
    source: Path,
    *,
    author: Author,
    origin: Origin,
    scripts: bool = True,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    insist: bool = False,
) -> AdmissionResult:
    """Copy the skill in the folder ``source`` once, judge the copy, and register it with the rights that it earns.

    Args:
        registry: where it is registered.
        source: the folder, whose name is the skill's.
        author: of the text.
        origin: of the text; one from untrusted material waits in quarantine for a person.
        scripts: prove the sandbox of scripts, so that they can earn their right.
        grants: of a function; of a guide, a person grants them later.
        cases: arguments and results that a function must pass.
        insist: a person's approval of a function by an author that could have bypassed the gate.

    Raises:
        Refused: the registry cannot be trusted.
        SkillRefused: the folder holds links, devices, invalid names, or too much.
        OSError: it cannot be read.
        HermesError: a check failed; nothing was registered.
    """
    from hermes_exec_policies.gate.tree import copy_tree

    with private_folder() as folder:
        tree = copy_tree(source, folder / os.path.basename(os.path.realpath(source)))  # noqa: ASYNC240, PTH119  one system call
        return await register_tree(
            registry, tree, author=author, origin=origin, scripts=scripts, grants=grants, cases=cases, insist=insist
        )


async def register_tree(
    registry: Registry,
    tree: Tree,
    *,
    author: Author,
    origin: Origin,
    scripts: bool = True,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    insist: bool = False,
) -> AdmissionResult:
    """Do the same for a private copy of a tree, whose folder has the name of the skill."""
    from hermes_exec_policies.gate.guide import check_guide
    from hermes_exec_policies.gate.verdict import advice
    from hermes_exec_policies.load import load_policy

    if origin.kind == "imported" and not origin.digest:
        origin = replace(origin, digest=tree.digest)
    lacking = ""
    if is_function(tree):
        try:
            called = await validate_and_register(
                registry, tree, author=author, grants=grants, cases=cases, insist=insist, origin=origin
            )
        except HermesError as error:  # without a sandbox, or from an author that is not confined
            lacking = error.what
        else:
            if called.version is not None or called.report.security:
                return called
            lacking = "; ".join(called.report.reasons[:3])
    report = await check_guide(tree, scripts=scripts)
    if lacking:
        report = replace(
            report, findings=(*report.findings, advice("call.not-earned", f"it cannot be called: {lacking}"))
        )
    if not report.accepted:
        return AdmissionResult(report, None)
    version = registry.register(
        tree, report, load_policy(report.policy), author=author, kernel=platform.release(), origin=origin
    )
    return AdmissionResult(report, version)


def is_function(tree: Tree) -> bool:
    """Whether a skill has a script that can be a function, and tests, so that the whole gate judges it."""
    paths = {each.path for each in tree.files}
    entries = {"scripts/main.py", f"scripts/{tree.root.name.replace('-', '_')}.py"}
    return bool(entries & paths) and any(path.startswith("tests/") and path.endswith(".py") for path in paths)
