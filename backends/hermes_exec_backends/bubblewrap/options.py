"""The command line of ``bwrap`` for each kind of sandbox.

Two measurements explain the options. The first process of bwrap in the sandbox keeps the environment that bwrap was
started with, and /proc/1/environ shows it inside despite ``--clearenv``; so variables are removed before bwrap starts.
A sandbox of root without another user can write to files in /proc/sys, such as ``core_pattern``, without capabilities;
so that folder is mounted read-only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported
from hermes_exec_backends.bubblewrap.outer_host import PROBE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from hermes_exec.config.values import Bind as ProfileBind
    from hermes_exec_backends.bubblewrap.outer_host import OuterHost
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile
    from hermes_exec_backends.sandbox import Bind, Confinement

NAMESPACES = (
    "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
)  # fmt: skip
ALWAYS = ("--cap-drop", "ALL", "--new-session", "--die-with-parent")
HOME = "/home/sandbox"
_ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "LOGNAME": "sandbox",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "USER": "sandbox",
}
_SETTINGS = (
    "alternatives", "crypto-policies", "group", "hosts", "ld.so.cache", "nsswitch.conf", "passwd", "pki",
    "services", "ssl",
)  # fmt: skip
"""The entries of /etc that programs need; the rest, with its keys and passwords, is not mounted. The list is short
because bwrap reads all mounts again for each mount: forty of them doubled the start time of a sandbox."""
_OF_LOGINS = ("profile", "profile.d")
_RESOLVERS = ("resolv.conf",)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
_IN_MEMORY = ("/tmp", "/home", "/dev/shm")  # noqa: S108  private folders of the sandbox


def environment_prefix(variables: AbstractSet[str], user: int | None, kept: AbstractSet[str]) -> list[str]:
    """The command before bwrap: it removes the outer ``variables`` except ``kept``, and changes the user."""
    argv = ["env", "-i"]
    if kept:
        argv = ["env", *(word for name in sorted(variables - kept) for word in ("-u", name))]
    if user is not None:
        argv += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return argv


def profile_options(outside: OuterHost, profile: BubblewrapProfile, env: Mapping[str, str]) -> list[str]:
    """The options for a terminal of a profile. Variables in ``env`` are in bwrap's environment and not set again."""
    argv = [*NAMESPACES, *ALWAYS, "--hostname", profile.hostname]
    if profile.network == "none":
        argv.append("--unshare-net")
    argv += ["--ro-bind", profile.root, "/"] if profile.root else _system(outside, profile)
    argv += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path in _IN_MEMORY:
        argv += ["--perms", "1777", "--size", str(profile.space), "--tmpfs", path]
    argv += ["--perms", "0700", "--dir", HOME]
    for bind in profile.binds:
        argv += _bind(bind)
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    return [*argv, *_variables(_ENVIRONMENT, env)]


def terminal_options(confinement: Confinement, env: Mapping[str, str]) -> list[str]:
    """The options for a terminal under a specification; the launcher applies the rest of it.

    Raises:
        Unsupported: bwrap alone cannot create such a sandbox.
    """
    if confinement.files:
        raise Unsupported("bubblewrap: a policy that creates files cannot confine a terminal")
    argv = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    # Without a pid namespace it shares the kernel's settings, so the filter forbids user namespaces instead.
    argv += [*(["--disable-userns"] if has_pid_namespace(confinement) else []), *ALWAYS]
    if "uts" in confinement.namespaces:
        argv += ["--hostname", confinement.hostname]
    for bind in confinement.binds:
        argv += _bind(bind)
    for path, link in confinement.links:
        argv += ["--symlink", link, path]
    if confinement.proc:
        argv += proc_options(confinement)
    if confinement.dev:
        argv += ["--dev", "/dev"]
    for path in confinement.masked:
        if Path(path).is_dir():
            argv += ["--tmpfs", path, "--remount-ro", path]
        elif Path(path).exists():
            argv += ["--ro-bind", "/dev/null", path]
    for folder in confinement.tmpfs:
        argv += ["--perms", f"{folder.mode:04o}", "--size", str(folder.size), "--tmpfs", folder.target]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", confinement.cwd]
    return [*argv, *_variables(dict(confinement.env), env)]


def program_options(confinement: Confinement, files: Sequence[int]) -> list[str]:
    """The options for one program under a specification; ``files`` are descriptors of its files, in order."""
    argv = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    # The launcher needs these two for mounts that bwrap cannot create, and then drops them.
    argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    argv += ["--new-session", "--die-with-parent"]
    if "pid" in confinement.namespaces:
        argv.append("--as-pid-1")
    if "uts" in confinement.namespaces:
        argv += ["--hostname", confinement.hostname]
    above = [bind for bind in confinement.binds if not bind.target.startswith(("/proc/", "/dev/"))]
    for bind in above:
        argv += _bind(bind)
    if confinement.proc:
        argv += ["--proc", "/proc"]
    if confinement.dev:
        argv += ["--perms", "0755", "--size", "4096", "--tmpfs", "/dev"]
        for name in _DEVICES:
            argv += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for name, target in _DEVICE_LINKS.items():
            argv += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    for bind in confinement.binds:
        argv += [] if bind in above else _bind(bind)
    for path, target in confinement.links:
        argv += ["--symlink", target, path]
    for (path, _), fd in zip(confinement.files, files, strict=True):
        argv += ["--perms", "0444", "--file", str(fd), path]
    for folder in confinement.tmpfs:
        argv += ["--perms", "0755", "--dir", folder.target]
    if confinement.dev:
        argv += ["--remount-ro", "/dev"]
    return [*argv, "--remount-ro", "/", "--chdir", "/"]


def _bind(bind: Bind | ProfileBind) -> list[str]:
    return ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]


def probe_options(confinement: Confinement) -> tuple[str, ...]:
    """The options of a sandbox with the same namespaces that runs a no-op, to check that one starts."""
    if has_pid_namespace(confinement):
        return PROBE
    argv = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    return (*argv, *ALWAYS, "--ro-bind", "/", "/", *proc_options(confinement), "--dev", "/dev", "/bin/sh", "-c", ":")


def has_pid_namespace(confinement: Confinement) -> bool:
    """Whether the sandbox has a pid namespace."""
    return "pid" in confinement.namespaces


def proc_options(confinement: Confinement) -> list[str]:
    """The options for a new /proc or, without a pid namespace, for the outer one."""
    if has_pid_namespace(confinement):
        return ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    return ["--ro-bind", "/proc", "/proc"]


def _variables(values: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() if name not in given for word in ("--setenv", name, value)]


def _system(outside: OuterHost, profile: BubblewrapProfile) -> list[str]:
    argv = ["--ro-bind", "/usr", "/usr", "--perms", "0755", "--dir", "/etc", "--dir", "/run"]
    argv += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108  the sandbox's own
    for path, link in outside.system.items():
        argv += ["--symlink", link, path] if link else ["--ro-bind", path, path]
    more = (*(_OF_LOGINS if profile.login else ()), *(_RESOLVERS if profile.network == "host" else ()))
    for name in (*_SETTINGS, *more):
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return argv
