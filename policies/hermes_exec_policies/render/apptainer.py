"""A policy as options of ``apptainer exec``.

Apptainer shares what it can, so most of the words take something away. It has no limits of its own where no
service manager runs, no noexec for a folder, and no unique user: what starts it has to bring those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.render.apparmor import profile_name

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy


def render(policy: Policy, *, seccomp: str, apparmor: bool) -> tuple[str, ...]:
    """The words between ``exec`` and the image; ``seccomp`` is the path of the JSON, empty for none.

    ``apparmor`` says whether the machine has loaded the profile.
    """
    words: list[str] = []
    if policy.processes.hidden:
        words += ["--containall", "--no-home", "--no-init"]
    if policy.environment.cleared:
        words.append("--cleanenv")
    if policy.environment.set:
        words.append("--no-eval")  # else a shell inside makes commands and variables of what values hold
    for name, value in sorted(policy.environment.set.items()):
        words += ["--env", _variable(name, value)]
    if policy.network.access != "open":
        words += ["--net", "--network", "none"]
    if not policy.privileges.capabilities:
        words += ["--drop-caps", "all"]
    if policy.privileges.none_gained:
        words.append("--no-privs")
    if seccomp:
        words += ["--security", f"seccomp:{seccomp}"]
    if apparmor and policy.files.root == "read-only":
        words += ["--security", f"apparmor:{profile_name(policy)}"]
    for path in policy.writable if policy.files.hidden else ():
        if path not in {"/tmp", "/dev/shm"}:  # noqa: S108  mount points, which --contain makes private
            words += ["--scratch", path]
    return tuple(words)


def _variable(name: str, value: str) -> str:
    """One variable: a word with several ``=`` is read as CSV there, and any other loses the quotes at its ends."""
    plain = f"{name}={value}"
    if not {'"', ","} & {*value}:
        return plain
    quoted = '"' + plain.replace('"', '""') + '"'
    return quoted if "=" in value else f"{quoted},{quoted}"
