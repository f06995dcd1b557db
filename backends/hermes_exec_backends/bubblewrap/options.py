"""The words that start ``bwrap``: what a sandbox is made of.

Measured, and so said here: bwrap's own first process in the sandbox keeps the variables that bwrap was started with,
and /proc/1/environ shows them inside, whatever ``--clearenv`` says; so they are removed before bwrap starts. And a
sandbox of root's without another user could write to files of /proc/sys, ``core_pattern`` among them, without any
capability; so that folder is mounted read-only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported
from hermes_exec_backends.bubblewrap.outer_host import TRIAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from hermes_exec.config.values import Bind as ProfileBind
    from hermes_exec_backends.bubblewrap.outer_host import Outside
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
"""What programs need of /etc; the rest of it, with its keys and passwords, is not there. It is short because every
mount costs: bwrap reads the list of all mounts again for each, and forty of them doubled the start of a sandbox."""
_OF_LOGINS = ("profile", "profile.d")
_RESOLVERS = ("resolv.conf",)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
_IN_MEMORY = ("/tmp", "/home", "/dev/shm")  # noqa: S108  new ones, of the sandbox alone


def prefix(variables: AbstractSet[str], user: int | None, kept: AbstractSet[str]) -> list[str]:
    """What comes before bwrap: away with the ``variables`` of the place outside but ``kept``, and be another user."""
    words = ["env", "-i"]
    if kept:
        words = ["env", *(word for name in sorted(variables - kept) for word in ("-u", name))]
    if user is not None:
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return words


def options(outside: Outside, profile: BubblewrapProfile, env: Mapping[str, str]) -> list[str]:
    """The options of bwrap; a variable of ``env`` is one that it was started with, and stays as it is."""
    words = [*NAMESPACES, *ALWAYS, "--hostname", profile.hostname]
    if profile.network == "none":
        words.append("--unshare-net")
    words += ["--ro-bind", profile.root, "/"] if profile.root else _system(outside, profile)
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path in _IN_MEMORY:
        words += ["--perms", "1777", "--size", str(profile.space), "--tmpfs", path]
    words += ["--perms", "0700", "--dir", HOME]
    for bind in profile.binds:
        words += _bind(bind)
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    return [*words, *_variables(_ENVIRONMENT, env)]


def options_under(confinement: Confinement, env: Mapping[str, str]) -> list[str]:
    """The options of bwrap for a terminal under a specification, of which the launcher applies the rest.

    Raises:
        Unsupported: bwrap alone cannot make it.
    """
    if confinement.files:
        raise Unsupported("bubblewrap: a policy that makes files of its own is not for terminals")
    words = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    # Without processes of its own it has no settings of the kernel of its own to say so in; the filter says so.
    words += [*(["--disable-userns"] if own_processes(confinement) else []), *ALWAYS]
    if "uts" in confinement.namespaces:
        words += ["--hostname", confinement.hostname]
    for bind in confinement.binds:
        words += _bind(bind)
    for path, link in confinement.links:
        words += ["--symlink", link, path]
    if confinement.proc:
        words += proc(confinement)
    if confinement.dev:
        words += ["--dev", "/dev"]
    for path in confinement.masked:
        if Path(path).is_dir():
            words += ["--tmpfs", path, "--remount-ro", path]
        elif Path(path).exists():
            words += ["--ro-bind", "/dev/null", path]
    for folder in confinement.tmpfs:
        words += ["--perms", f"{folder.mode:04o}", "--size", str(folder.size), "--tmpfs", folder.target]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", confinement.cwd]
    return [*words, *_variables(dict(confinement.env), env)]


def options_for_program(confinement: Confinement, files: Sequence[int]) -> list[str]:
    """The options of bwrap; ``files`` are descriptors of the specification's files, in its order."""
    words = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    # These two are the launcher's, for what bwrap cannot mount, until it drops them.
    words += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    words += ["--new-session", "--die-with-parent"]
    if "pid" in confinement.namespaces:
        words.append("--as-pid-1")
    if "uts" in confinement.namespaces:
        words += ["--hostname", confinement.hostname]
    above = [bind for bind in confinement.binds if not bind.target.startswith(("/proc/", "/dev/"))]
    for bind in above:
        words += _bind(bind)
    if confinement.proc:
        words += ["--proc", "/proc"]
    if confinement.dev:
        words += ["--perms", "0755", "--size", "4096", "--tmpfs", "/dev"]
        for name in _DEVICES:
            words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for name, target in _DEVICE_LINKS.items():
            words += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    for bind in confinement.binds:
        words += [] if bind in above else _bind(bind)
    for path, target in confinement.links:
        words += ["--symlink", target, path]
    for (path, _), fd in zip(confinement.files, files, strict=True):
        words += ["--perms", "0444", "--file", str(fd), path]
    for folder in confinement.tmpfs:
        words += ["--perms", "0755", "--dir", folder.target]
    if confinement.dev:
        words += ["--remount-ro", "/dev"]
    return [*words, "--remount-ro", "/", "--chdir", "/"]


def _bind(bind: Bind | ProfileBind) -> list[str]:
    return ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]


def trial_under(confinement: Confinement) -> tuple[str, ...]:
    """A sandbox in which nothing is done, of namespaces like these."""
    if own_processes(confinement):
        return TRIAL
    words = [f"--unshare-{name}" for name in sorted(confinement.namespaces)]
    return (*words, *ALWAYS, "--ro-bind", "/", "/", *proc(confinement), "--dev", "/dev", "/bin/sh", "-c", ":")


def own_processes(confinement: Confinement) -> bool:
    """Whether it has a table of processes of its own."""
    return "pid" in confinement.namespaces


def proc(confinement: Confinement) -> list[str]:
    """A /proc of its own processes, or that of the place, where it shares those."""
    if own_processes(confinement):
        return ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    return ["--ro-bind", "/proc", "/proc"]


def _variables(values: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() if name not in given for word in ("--setenv", name, value)]


def _system(outside: Outside, profile: BubblewrapProfile) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr", "--perms", "0755", "--dir", "/etc", "--dir", "/run"]
    words += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108  the sandbox's own
    for path, link in outside.system.items():
        words += ["--symlink", link, path] if link else ["--ro-bind", path, path]
    more = (*(_OF_LOGINS if profile.login else ()), *(_RESOLVERS if profile.network == "host" else ()))
    for name in (*_SETTINGS, *more):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return words
