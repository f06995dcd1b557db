"""Checks before a registered skill runs: that it may run with these arguments, under the conditions of its proof."""

from __future__ import annotations

import os
import platform
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, HermesError, Refused, UsageError
from hermes_exec_agent.skills.registry import content

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.model import Policy


def check_new_folder(folder: Path | None) -> None:
    """Check that a folder for files can be created; None needs none.

    Raises:
        UsageError: it exists, or the folder above it does not.
    """
    if folder is None:
        return
    if os.path.lexists(folder):
        raise UsageError(f"{to_printable(folder)} is there already", remedy="name a new folder")
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"{to_printable(folder.absolute().parent)}: there is no such folder")


def copy_files(registry: Registry, version: Version, into: Path) -> None:
    """Copy a version's files to a new or empty folder.

    Raises:
        Refused: they differ from the signed list, which quarantines the version.
    """
    try:
        content.copy_verified(registry.tree(version), version.files, into)
    except content.ContentChanged as error:
        registry.quarantine(version.name, version.number, f"changed: {error.what}")
        raise


def check_arguments(version: Version, arguments: Mapping[str, Any]) -> None:
    """Check that the skill accepts the arguments.

    Raises:
        UsageError: it does not; the message has the first problem.
    """
    from jsonschema import Draft202012Validator, exceptions

    checker: Any = Draft202012Validator(dict(version.schema))
    best = cast("Any", exceptions.best_match)  # pyright: ignore[reportUnknownMemberType]  its types are partial
    wrong = best(checker.iter_errors(dict(arguments)))
    if wrong is not None:
        where = "".join(f"[{part!r}]" for part in wrong.absolute_path)
        message = " ".join(wrong.message.split())[:300]
        names = ", ".join(version.schema.get("properties", {})) or "none"
        raise UsageError(f"{version.name}: arguments{where}: {message}", remedy=f"--json with an object of: {names}")


def resolve_policy(registry: Registry, version: Version) -> Policy:
    """Return the policy that a version was proven with, with its grants; the policy must be unchanged.

    Raises:
        Refused: the policy was changed; the version is in quarantine until it is proven again.
    """
    from hermes_exec_policies.egress import grant_hosts
    from hermes_exec_policies.folders import with_folders
    from hermes_exec_policies.gate.grants import apply_bounds
    from hermes_exec_policies.load import load_policy

    name = str(version.policy["name"])
    try:
        policy = load_policy(name)
    except ConfigError as error:
        raise Refused(f"{version.name} {version.number}: its policy cannot be loaded: {error.what}") from error
    if policy.digest != version.policy_digest:
        registry.quarantine(version.name, version.number, f"the policy {name} was changed")
        raise Refused(
            f"{version.name} {version.number}: it was proven with a policy {name} that was changed since",
            remedy=f"hermes-exec skill prove {version.name}, which proves it with the policy as it is",
        )
    try:
        bound = grant_hosts(apply_bounds(policy, version.grants.get("limits", {})), version.grants.get("hosts", ()))
        return with_folders(bound, read_folders(version))
    except ValueError as error:
        raise Refused(
            f"{version.name} {version.number}: its grants cannot be applied any more: {error}",
            remedy=f"hermes-exec skill prove {version.name}",
        ) from error


def read_folders(version: Version) -> list[SharedFolder]:
    """Return the folders of this machine that were granted to a version."""
    from hermes_exec_policies.folders import SharedFolder

    return [SharedFolder.parse_grant(word) for word in version.grants.get("folders", ())]


def check_folder(registry: Registry, folder: SharedFolder, user: int | None = None) -> tuple[int, int]:
    """Return the identity of a folder that a sandbox of ``user`` may be given.

    Raises:
        Refused: it may not, or the folder does not exist.
    """
    from hermes_exec_policies.folders import identify_folder

    if registry.home.find_exposed([folder.source]):
        raise Refused(f"the folder {folder.source} holds the registry or its key, or lies in it")
    return identify_folder(folder, user)


def check_unchanged(version: Version) -> None:
    """Check that kernel and interpreter are those of the proof.

    Raises:
        Refused: they are not.
    """
    if changed := _find_changes(version):
        raise Refused(
            f"{version.name} {version.number}: it was proven with another {' and '.join(changed)}",
            remedy=f"hermes-exec skill prove {version.name}",
        )


def is_as_proven(version: Version) -> bool:
    """Whether policy, kernel and interpreter are those of the proof."""
    from hermes_exec_policies.load import load_policy

    try:
        return not _find_changes(version) and load_policy(str(version.policy["name"])).digest == version.policy_digest
    except ConfigError:
        return False


def _find_changes(version: Version) -> list[str]:
    from hermes_exec_policies.gate.launch import PYTHON, identify_interpreter

    now = {"kernel": platform.release(), "interpreter": identify_interpreter(PYTHON)}
    return [name for name, value in now.items() if getattr(version, name) != value]


def prepare_packages(registry: Registry, version: Version, folder: Path) -> Path | None:
    """Return the packages that a version was proven with, where a sandbox can reach them; None if it needs none.

    Raises:
        Refused: they are missing or were changed; if changed, the version is quarantined.
    """
    from hermes_exec_policies.gate.environments import environment_digest, share_environment

    if not version.environment:
        return None
    kept = registry.home.environments / version.environment
    if not kept.is_dir():
        raise Refused(
            f"{version.name} {version.number}: its packages are not kept any more",
            remedy=f"hermes-exec skill prove {version.name}, which brings them back",
        )
    try:
        prepared = share_environment(kept, folder / "packages")
        changed = "" if environment_digest(prepared) == version.environment else "a file in them is another one"
    except (OSError, HermesError) as error:
        prepared, changed = folder, str(error)
    if changed:
        registry.quarantine(version.name, version.number, f"its packages were changed: {changed}")
        raise content.ContentChanged(f"{version.name} {version.number}: its packages were changed: {changed}")
    return prepared


def check_allowed(skill: Skill, version: Version, *, self_tested: bool) -> None:
    """Check that a version of a skill may run.

    Raises:
        Refused: it is not a function, is archived or in quarantine, or no person approved a self-tested version.
    """
    name = f"{version.name} {version.number}"
    if not version.is_function:
        raise Refused(f"{name}: it is a guide, not a function", remedy=f"hermes-exec skill show {version.name}")
    check_ready(skill, version, f"hermes-exec skill prove {version.name}, or roll back to another version")
    if version.self_tested and not self_tested:
        raise Refused(
            f"{name}: cases from outside do not cover all of it (self-tested), so a person has to approve each run",
            remedy="--self-tested, or register it with cases that it has to hold: skill add --case",
        )


def check_ready(skill: Skill, version: Version, remedy: str) -> None:
    """Check that a version is neither archived nor in quarantine; ``remedy`` ends a quarantine.

    Raises:
        Refused: it is.
    """
    name = f"{version.name} {version.number}"
    if skill.archived:
        raise Refused(f"{name}: it is archived", remedy=f"hermes-exec skill restore {version.name}")
    if why := skill.kept_back.get(version.number):
        raise Refused(f"{name}: it is in quarantine: {why}", remedy=remedy)


def check_interpreter(version: Version, there: str) -> None:
    """Check that the interpreter ``there`` has the version of the proof, as images bring their own.

    Raises:
        Refused: it does not.
    """
    proven = PurePosixPath(version.interpreter.partition(" ")[0]).name
    if there != proven:
        raise Refused(
            f"{version.name} {version.number}: it was proven with {proven}, and the target has {there or 'none'}",
            remedy=f"an image with {proven} as its python3",
        )
