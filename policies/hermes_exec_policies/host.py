"""What this machine has to enforce a policy with: looked at and, where looking proves nothing, tried."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_SYS_LANDLOCK_CREATE_RULESET = 444  # the same number on every architecture
_LANDLOCK_CREATE_RULESET_VERSION = 1
_PR_GET_SECCOMP = 21
_FILTERED = 2
_PATIENCE_S = 10.0
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Which control groups can be used for a limit: ``cgroup v2``, ``cgroup v1`` or nothing."""

    memory: str = ""
    processes: str = ""
    cpus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts of one machine and user."""

    kernel: str
    machine: str
    """The architecture, as ``uname -m`` says it."""
    boot_id: str
    uid: int
    lsm: tuple[str, ...]
    """Security modules that the kernel runs, as far as it tells."""
    landlock_abi: int
    """0 where there is none."""
    apparmor: bool
    """Whether the kernel enforces AppArmor profiles."""
    profiles: tuple[str, ...]
    """AppArmor profiles that are loaded and enforced; empty too where we may not read which."""
    seccomp: bool
    user_namespaces: str
    """Why an ordinary process cannot make any; empty where it can."""
    proc: str = ""
    """Why no new /proc can be mounted in a sandbox; empty where it can, or where there can be no sandbox at all."""
    groups: Groups
    versions: dict[str, str]
    """Of programs that start sandboxes, and of libseccomp; what is missing is not in it."""
    sysctls: dict[str, str]
    """Settings of the kernel that change what a sandbox is worth."""

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    @property
    def root(self) -> bool:
        """Whether we are root here."""
        return self.uid == 0


SYSCTLS = (
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/unprivileged_bpf_disabled",
    "kernel/yama/ptrace_scope",
    "kernel/io_uring_disabled",
    "kernel/perf_event_paranoid",
    "user/max_user_namespaces",
    "dev/tty/legacy_tiocsti",
    "vm/unprivileged_userfaultfd",
)
"""Below /proc/sys."""


@cache
def this_host() -> Host:
    """The facts of this machine. Starts programs to ask their versions, and is asked once a process."""
    security = Path("/sys/kernel/security")
    apparmor = _text("/sys/module/apparmor/parameters/enabled") == "Y"
    sysctls = {name.replace("/", "."): value for name in SYSCTLS if (value := _text(f"/proc/sys/{name}"))}
    return Host(
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
        sysctls=sysctls,
    )


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0 where it has none or was booted without."""
    found: int = ctypes.CDLL(None, use_errno=True).syscall(
        _SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(found, 0)


def _prctl(option: int) -> int:
    found: int = ctypes.CDLL(None, use_errno=True).prctl(option, 0, 0, 0, 0)
    return -1 if found < 0 and ctypes.get_errno() == errno.EINVAL else found


def _modules(told: str, *, apparmor: bool) -> tuple[str, ...]:
    # Without securityfs the kernel tells no list, so it is what can be seen of it.
    if told:
        return tuple(told.split(","))
    seen = {"landlock": landlock_abi() > 0, "apparmor": apparmor, "selinux": Path("/sys/fs/selinux/enforce").exists()}
    return tuple(name for name, there in seen.items() if there)


def _profiles(told: str) -> tuple[str, ...]:
    return tuple(sorted(line.rpartition(" (")[0] for line in told.splitlines() if line.endswith("(enforce)")))


def _namespaces(sysctls: dict[str, str]) -> str:
    if sysctls.get("user.max_user_namespaces") == "0":
        return "the kernel's limit of user namespaces is 0 (sysctl user.max_user_namespaces)"
    if sysctls.get("kernel.unprivileged_userns_clone") == "0":
        return "they are for root alone here (sysctl kernel.unprivileged_userns_clone)"
    if sysctls.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return "AppArmor allows them to programs with a profile alone (kernel.apparmor_restrict_unprivileged_userns)"
    unshare = shutil.which("unshare")
    if unshare and _ran(unshare, "--user", "--", "true") is None:
        return (
            "the filter of this container refused one"
            if _prctl(_PR_GET_SECCOMP) == _FILTERED
            else "the kernel refused one"
        )
    return ""


def _proc() -> str:
    """Tried only where something lies over a part of /proc, which is what the kernel goes by."""
    covered = any(line.split()[4].startswith("/proc/") for line in _text("/proc/self/mountinfo").splitlines())
    bwrap = shutil.which("bwrap")
    if not covered or not bwrap:
        return ""
    words = (bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/")
    if _ran(*words, "true") is None or _ran(*words, "--proc", "/proc", "true") is not None:
        return ""
    return "parts of /proc are covered here, as they are in a container, so the kernel mounts no new one"


def _groups() -> Groups:
    from hermes_exec.guest.limits import cgroups

    homes = cgroups.find((cgroups.MEMORY, cgroups.PROCESSES, cgroups.CPUS))
    by = {kind: home.enforcer for kind, home in homes.items()}
    return Groups(
        memory=by.get(cgroups.MEMORY, ""), processes=by.get(cgroups.PROCESSES, ""), cpus=by.get(cgroups.CPUS, "")
    )


def _versions() -> dict[str, str]:
    asked = {
        "bwrap": ("bwrap", "--version"),
        "apptainer": ("apptainer", "--version"),
        "singularity": ("singularity", "--version"),
        "docker": ("docker", "--version"),
        "docker engine": ("docker", "version", "--format", "{{.Server.Version}}"),
        "runc": ("runc", "--version"),
        "apparmor_parser": ("apparmor_parser", "--version"),
    }
    with ThreadPoolExecutor(len(asked)) as pool:  # each of them mostly waits
        found = dict(zip(asked, pool.map(_version, asked.values()), strict=True))
    found["libseccomp"] = _libseccomp()
    return {name: version for name, version in found.items() if version}


def _version(argv: tuple[str, ...]) -> str:
    program, *words = argv
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    said = _ran(path, *words) if path else None
    number = _VERSION.search(said or "")
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


def _ran(*argv: str) -> str | None:
    """What a program says; None where it fails."""
    try:
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
