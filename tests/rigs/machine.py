"""What the virtual machine has to enforce a policy with, as far as a specification asks."""

from __future__ import annotations

from dataclasses import replace

from hermes_exec_backends.sandbox.host import ControlGroups, Machine, this_machine
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import apparmor

POLICY = "skill-validate"
"""The one whose profile is loaded there."""


def there() -> Machine:
    """That machine, as far as a specification asks."""
    groups = ControlGroups(memory="cgroup v2", processes="cgroup v2", cpus="cgroup v2")
    name = apparmor.profile_name(load_policy(POLICY))
    return replace(
        this_machine(), landlock_abi=2, apparmor=True, profiles=(name,), groups=groups, user_namespaces="", proc=""
    )
