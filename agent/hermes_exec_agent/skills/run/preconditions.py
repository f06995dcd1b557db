"""What is seen to before a registered skill runs: that it may, with these arguments, as it was proven."""

from __future__ import annotations

import platform
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import ConfigError, HermesError, Refused, UsageError
from hermes_exec_agent.skills.registry import content

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.folders import Folder
    from hermes_exec_policies.model import Policy


def fit(version: Version, arguments: Mapping[str, Any]) -> None:
    """See that the arguments are what the skill takes.

    Raises:
        UsageError: they are not; says the first thing that is amiss.
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


def policy_of(registry: Registry, version: Version) -> Policy:
    """The policy that a version was proven with, with what it was granted; it has to be what its name means now.

    Raises:
        Refused: that policy says something else now; the version is kept back until it is proven anew.
    """
    from hermes_exec_policies.egress import granted
    from hermes_exec_policies.folders import with_folders
    from hermes_exec_policies.gate.bounds import bounded
    from hermes_exec_policies.load import load

    name = str(version.policy["name"])
    try:
        policy = load(name)
    except ConfigError as error:
        raise Refused(f"{version.name} {version.number}: its policy cannot be had: {error.what}") from error
    if policy.digest != version.policy_digest:
        registry.quarantine(version.name, version.number, f"the policy {name} was changed")
        raise Refused(
            f"{version.name} {version.number}: it was proven with a policy {name} that says something else now",
            remedy=f"hermes-exec skill prove {version.name}, which proves it with the policy as it is",
        )
    try:
        bound = granted(bounded(policy, version.grants.get("limits", {})), version.grants.get("hosts", ()))
        return with_folders(bound, folders_of(version))
    except ValueError as error:
        raise Refused(
            f"{version.name} {version.number}: what it was granted cannot be given any more: {error}",
            remedy=f"hermes-exec skill prove {version.name}",
        ) from error


def folders_of(version: Version) -> list[Folder]:
    """The folders of this machine that a version was granted."""
    from hermes_exec_policies.folders import Folder

    return [Folder.granted(word) for word in version.grants.get("folders", ())]


def given(registry: Registry, folder: Folder, user: int | None = None) -> tuple[int, int]:
    """Which folder it is, which a sandbox of ``user`` may be given.

    Raises:
        Refused: it may not, or it is not there.
    """
    from hermes_exec_policies.folders import looked_at

    if registry.home.exposes([folder.source]):
        raise Refused(f"the folder {folder.source} holds the registry or its key, or lies in it")
    return looked_at(folder, user)


def unchanged(version: Version) -> None:
    """See that kernel and interpreter are those that it was proven with.

    Raises:
        Refused: they are not.
    """
    if changed := _others(version):
        raise Refused(
            f"{version.name} {version.number}: it was proven with another {' and '.join(changed)}",
            remedy=f"hermes-exec skill prove {version.name}",
        )


def is_as_proven(version: Version) -> bool:
    """Whether policy, kernel and interpreter are those that it was proven with."""
    from hermes_exec_policies.load import load

    try:
        return not _others(version) and load(str(version.policy["name"])).digest == version.policy_digest
    except ConfigError:
        return False


def _others(version: Version) -> list[str]:
    from hermes_exec_policies.gate.interpreter import interpreter
    from hermes_exec_policies.gate.launch import PYTHON

    now = {"kernel": platform.release(), "interpreter": interpreter(PYTHON)}
    return [name for name, value in now.items() if getattr(version, name) != value]


def packages(registry: Registry, version: Version, folder: Path) -> Path | None:
    """The packages that a version was proven with, where a sandbox can reach them; None where it needs none.

    Raises:
        Refused: they are not there, or were changed; then the version is kept back as well.
    """
    from hermes_exec_policies.gate.packages.environments import digest_of, reachable

    if not version.environment:
        return None
    kept = registry.home.environments / version.environment
    if not kept.is_dir():
        raise Refused(
            f"{version.name} {version.number}: its packages are not kept any more",
            remedy=f"hermes-exec skill prove {version.name}, which brings them back",
        )
    try:
        prepared = reachable(kept, folder / "packages")
        changed = "" if digest_of(prepared) == version.environment else "a file in them is another one"
    except (OSError, HermesError) as error:
        prepared, changed = folder, str(error)
    if changed:
        registry.quarantine(version.name, version.number, f"its packages were changed: {changed}")
        raise content.Changed(f"{version.name} {version.number}: its packages were changed: {changed}")
    return prepared


def allowed(skill: Skill, version: Version, *, self_tested: bool) -> None:
    """See that a version of a skill is to run at all.

    Raises:
        Refused: it is archived or in quarantine, or nobody agreed to run it though it only tested itself.
    """
    name = f"{version.name} {version.number}"
    if skill.archived:
        raise Refused(f"{name}: it is archived", remedy=f"hermes-exec skill restore {version.name}")
    if why := skill.kept_back.get(version.number):
        raise Refused(
            f"{name}: it is in quarantine: {why}",
            remedy=f"hermes-exec skill prove {version.name}, or roll back to another version",
        )
    if version.self_tested and not self_tested:
        raise Refused(
            f"{name}: nothing but its own tests speaks for it (self-tested), so a person has to agree to each run",
            remedy="--self-tested, or register it with cases that it has to hold: skill add --case",
        )


def same_language(version: Version, there: str) -> None:
    """See that the interpreter called ``there`` is one of the version that it was proven with; images have their own.

    Raises:
        Refused: it is not.
    """
    proven = PurePosixPath(version.interpreter.partition(" ")[0]).name
    if there != proven:
        raise Refused(
            f"{version.name} {version.number}: it was proven with {proven}, and the place has {there or 'none'}",
            remedy=f"an image with {proven} as its python3",
        )
