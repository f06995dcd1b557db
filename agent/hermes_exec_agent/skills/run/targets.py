"""The target in which a skill's sandbox is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.config.profile import Profile
    from hermes_exec_policies.start_program import SandboxTarget


def resolve_target(target: str | None) -> SandboxTarget | Profile:
    """Return where skills of a target or a profile run: this machine, by bubblewrap, if there is none.

    For a cloud provider it is the profile, as its sandboxes cannot be inspected.

    Raises:
        ConfigError: the target does not exist.
        Unsupported: the target cannot enforce the policy of a skill; the message has the cause.
    """
    from hermes_exec_policies import start_program

    if target is None:
        return start_program.LOCAL
    from hermes_exec.config.load import load_settings
    from hermes_exec.config.targets import parse_target
    from hermes_exec_agent.skills.run.clouds import KINDS

    profiles = load_settings().profiles
    found = parse_target(target, profiles)
    if len(found.chain) == 1 and found.profile.type in KINDS:
        return found.profile
    return start_program.parse_sandbox_target(target, profiles)
