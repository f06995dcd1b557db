"""Render a policy as options of ``apptainer exec``.

Apptainer shares most resources by default, so most options restrict it. Without a service manager it has no limits, and
it supports neither noexec folders nor a unique user: the caller has to set those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.render.apparmor import profile_name

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy


def render(policy: Policy, *, seccomp: str, apparmor: bool) -> tuple[str, ...]:
    """The options between ``exec`` and the image; ``seccomp`` is the path of the JSON, empty for none.

    ``apparmor`` is whether the machine has loaded the profile.
    """
    options: list[str] = []
    if policy.processes.hidden:
        options += ["--containall", "--no-home", "--no-init"]
    if policy.environment.cleared:
        options.append("--cleanenv")
    if policy.environment.set:
        options.append("--no-eval")  # otherwise a shell inside evaluates commands and variables in the values
    for name, value in sorted(policy.environment.set.items()):
        options += ["--env", _variable(name, value)]
    if policy.network.access != "open":
        options += ["--net", "--network", "none"]
    if not policy.privileges.capabilities:
        options += ["--drop-caps", "all"]
    if policy.privileges.none_gained:
        options.append("--no-privs")
    if seccomp:
        options += ["--security", f"seccomp:{seccomp}"]
    if apparmor and policy.files.root == "read-only":
        options += ["--security", f"apparmor:{profile_name(policy)}"]
    for path in policy.writable if policy.files.hidden else ():
        if path not in {"/tmp", "/dev/shm"}:  # noqa: S108  mount points, which --contain makes private
            options += ["--scratch", path]
    return tuple(options)


def _variable(name: str, value: str) -> str:
    """Quote a variable: Apptainer parses a value with several ``=`` as CSV, and strips outer quotes of others."""
    plain = f"{name}={value}"
    if not {'"', ","} & {*value}:
        return plain
    quoted = '"' + plain.replace('"', '""') + '"'
    return quoted if "=" in value else f"{quoted},{quoted}"
