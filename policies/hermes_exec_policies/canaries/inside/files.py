"""Attempts on files outside of the writable folders, links to them, devices, and newly written programs."""

import mmap
import os
import shutil
import stat
import subprocess

from .kit import Absent, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kit import Config

_DATA = b"hermes canary"
_SYSTEM = os.__file__
"""A system file that is not a running program, which would fail with ETXTBSY."""
_DEVICES = ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "fuse", "net/tun", "kvm", "loop-control")


def _write_file(path: str) -> str:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, _DATA)
    finally:
        os.close(fd)
        os.unlink(path)
    return path


def _home(config: "Config") -> str:
    return str(config["write"][0])


@attempt("files-etc")
def etc(_: "Config") -> str:
    """Create a file in /etc."""
    return _write_file("/etc/hermes-canary")


@attempt("files-usr")
def usr(_: "Config") -> str:
    """Create a file in /usr/bin."""
    return _write_file("/usr/bin/hermes-canary")


@attempt("files-root")
def root(_: "Config") -> str:
    """Create a file in the root folder."""
    return _write_file("/hermes-canary")


@attempt("files-skills")
def skills(_: "Config") -> str:
    """Create a file in the folder of skills."""
    return _write_file("/app/skills/hermes-canary")


@attempt("files-app")
def app(_: "Config") -> str:
    """Create a file next to the writable folder."""
    return _write_file("/app/hermes-canary")


@attempt("files-folders")
def folders(config: "Config") -> str:
    """Create a file in a folder that was granted for reading."""
    if not config["folders"]:
        raise Absent("there is no such folder")
    return _write_file(config["folders"][0] + "/hermes-canary")


@attempt("files-change")
def change(_: "Config") -> str:
    """Open a system file for writing."""
    os.close(os.open(_SYSTEM, os.O_WRONLY))
    return _SYSTEM


@attempt("files-climb")
def climb(config: "Config") -> str:
    """Create a file outside of the writable folder, by a path with ``..``."""
    return _write_file(_home(config) + "/../../etc/hermes-canary")


@attempt("files-symlink")
def symlink(config: "Config") -> str:
    """Create a file outside of the writable folder, through a symbolic link."""
    link = _home(config) + "/hermes-link"
    os.symlink("/etc", link)
    try:
        return _write_file(link + "/hermes-canary")
    finally:
        os.unlink(link)


@attempt("files-hardlink")
def hardlink(config: "Config") -> str:
    """Create a hard link to a system file in the writable folder."""
    path = _home(config) + "/hermes-passwd"
    os.link(_SYSTEM, path)
    os.unlink(path)
    return path


@attempt("files-rename")
def rename(config: "Config") -> str:
    """Move a file out of the writable folder."""
    path = _home(config) + "/hermes-moved"
    with open(path, "wb"):
        pass
    try:
        os.rename(path, "/usr/hermes-moved")
    except OSError:
        os.unlink(path)
        raise
    os.unlink("/usr/hermes-moved")
    return "/usr/hermes-moved"


@attempt("files-chmod")
def chmod(_: "Config") -> str:
    """Set the mode of a system file to its current value."""
    os.chmod(_SYSTEM, stat.S_IMODE(os.stat(_SYSTEM).st_mode))
    return _SYSTEM


@attempt("files-proc-sys")
def proc_sys(_: "Config") -> str:
    """Open a kernel setting for writing."""
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "core_pattern"


@attempt("files-sysrq")
def sysrq(_: "Config") -> str:
    """Open the kernel's command file for writing."""
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "sysrq-trigger"


@attempt("files-proc-self")
def proc_self(_: "Config") -> str:
    """Write a file in the process's own /proc, which the mount and the file's mode both allow."""
    with open("/proc/self/comm", "w") as file:
        file.write("hermes")
    return "/proc/self/comm"


@attempt("files-list-root")
def list_root(_: "Config") -> str:
    """List the root folder, which its mode allows."""
    return " ".join(os.listdir("/"))


@attempt("files-fd-reopen")
def fd_reopen(_: "Config") -> str:
    """Reopen a system file that is open for reading for writing, by its descriptor in /proc."""
    fd = os.open(_SYSTEM, os.O_RDONLY)
    os.close(os.open("/proc/self/fd/{}".format(fd), os.O_RDWR))
    return _SYSTEM


@attempt("files-proc-root")
def proc_root(config: "Config") -> str:
    """Read a file of the machine through the root folder of process 1."""
    with open("/proc/1/root" + config["outside"]["file"]) as file:
        return file.read(20)


@attempt("files-cgroup")
def cgroup(_: "Config") -> str:
    """Find a writable control file to leave the control group or change its limits."""
    for top, _folders, names in os.walk("/sys/fs/cgroup"):
        for name in names:
            if name.endswith(("procs", "release_agent")) and os.access(os.path.join(top, name), os.W_OK):
                return os.path.join(top, name)
    raise Absent("no control group that can be written")


@attempt("files-mknod")
def mknod(config: "Config") -> str:
    """Create a device node of a disk."""
    path = _home(config) + "/hermes-disk"
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    os.unlink(path)
    return "a disk"


@attempt("files-fifo")
def fifo(config: "Config") -> str:
    """Create a named pipe with mknod, which needs no privilege."""
    path = _home(config) + "/hermes-fifo"
    os.mknod(path, 0o600 | stat.S_IFIFO)
    os.unlink(path)
    return path


@attempt("files-devices")
def devices(_: "Config") -> str:
    """Open devices of the machine."""
    opened: "list[str]" = []
    for name in _DEVICES:
        try:
            os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        opened.append(name)
    if not opened:
        raise Absent("none of them can be opened")
    return ", ".join(opened)


@attempt("files-run-written")
def run_written(config: "Config") -> str:
    """Run a newly written program in the writable folder."""
    path = _home(config) + "/hermes-echo"
    shutil.copy("/bin/echo", path)
    os.chmod(path, 0o755)
    try:
        return subprocess.check_output([path, "ran"], stdin=subprocess.DEVNULL).decode()
    finally:
        os.unlink(path)


@attempt("files-run-scratch")
def run_scratch(config: "Config") -> str:
    """Run a newly written program in a scratch folder."""
    if not config["scratch"]:
        raise Absent("there is no such folder")
    path = config["scratch"][-1] + "/hermes-echo"
    shutil.copy("/bin/echo", path)
    os.chmod(path, 0o755)
    try:
        return subprocess.check_output([path, "ran"], stdin=subprocess.DEVNULL).decode()
    finally:
        os.unlink(path)


@attempt("files-map-written")
def map_written(config: "Config") -> str:
    """Map a newly written file as executable, as a program loader does."""
    path = _home(config) + "/hermes-code"
    with open(path, "wb") as file:
        file.write(b"\0" * 4096)
    fd = os.open(path, os.O_RDONLY)
    try:
        mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE).close()
    finally:
        os.close(fd)
        os.unlink(path)
    return path


@attempt("files-set-id")
def set_id(config: "Config") -> str:
    """Set the set-user-ID bit of a file."""
    path = _home(config) + "/hermes-suid"
    with open(path, "wb"):
        pass
    try:
        os.chmod(path, 0o4755)
        return "{:o}".format(os.stat(path).st_mode)
    finally:
        os.unlink(path)


@attempt("files-set-id-open")
def set_id_open(config: "Config") -> str:
    """Create a file with the set-group-ID bit."""
    path = _home(config) + "/hermes-sgid"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o2755))
    mode = os.stat(path).st_mode
    os.unlink(path)
    if not mode & 0o6000:
        raise Absent("the file was made without it")
    return "{:o}".format(mode)
