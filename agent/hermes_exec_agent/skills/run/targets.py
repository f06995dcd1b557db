"""Where a skill runs: the place that a target means, if a sandbox can be made anew and looked at there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.config.profile import Profile
    from hermes_exec_policies.start_program import Place


def place_of(target: str | None) -> Place | Profile:
    """The place that a target or a profile means; on this machine, by bubblewrap, where there is none.

    A vendor's is its profile: nothing can be looked at there.

    Raises:
        ConfigError: there is no such place.
        Unsupported: nothing there can hold the policy of a skill; says why.
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
    return start_program.place_of(target, profiles)
