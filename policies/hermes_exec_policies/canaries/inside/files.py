"""Files outside of what can be written, links that lead there, devices, and programs that were just written."""

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
"""A file of the system that is no running program: one of those says only that it is busy."""
_DEVICES = ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "fuse", "net/tun", "kvm", "loop-control")


def _written(path: str) -> str:
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
    """Write beside the system's settings."""
    return _written("/etc/hermes-canary")


@attempt("files-usr")
def usr(_: "Config") -> str:
    """Write beside the system's programs."""
    return _written("/usr/bin/hermes-canary")


@attempt("files-root")
def root(_: "Config") -> str:
    """Write in the root folder."""
    return _written("/hermes-canary")


@attempt("files-skills")
def skills(_: "Config") -> str:
    """Write among the skills."""
    return _written("/app/skills/hermes-canary")


@attempt("files-app")
def app(_: "Config") -> str:
    """Write beside the folder that can be written."""
    return _written("/app/hermes-canary")


@attempt("files-folders")
def folders(config: "Config") -> str:
    """Write in a folder that was granted for reading."""
    if not config["folders"]:
        raise Absent("there is no such folder")
    return _written(config["folders"][0] + "/hermes-canary")


@attempt("files-change")
def change(_: "Config") -> str:
    """Open a file of the system for writing."""
    os.close(os.open(_SYSTEM, os.O_WRONLY))
    return _SYSTEM


@attempt("files-climb")
def climb(config: "Config") -> str:
    """Climb out of the folder that can be written."""
    return _written(_home(config) + "/../../etc/hermes-canary")


@attempt("files-symlink")
def symlink(config: "Config") -> str:
    """Write through a link that leads out."""
    link = _home(config) + "/hermes-link"
    os.symlink("/etc", link)
    try:
        return _written(link + "/hermes-canary")
    finally:
        os.unlink(link)


@attempt("files-hardlink")
def hardlink(config: "Config") -> str:
    """Have a second name for a file of the system where it can be written."""
    path = _home(config) + "/hermes-passwd"
    os.link(_SYSTEM, path)
    os.unlink(path)
    return path


@attempt("files-rename")
def rename(config: "Config") -> str:
    """Move a file out of the folder that can be written."""
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
    """Set the mode of a file of the system, to what it is."""
    os.chmod(_SYSTEM, stat.S_IMODE(os.stat(_SYSTEM).st_mode))
    return _SYSTEM


@attempt("files-proc-sys")
def proc_sys(_: "Config") -> str:
    """Change a setting of the kernel."""
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "core_pattern"


@attempt("files-sysrq")
def sysrq(_: "Config") -> str:
    """Give the kernel a command."""
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "sysrq-trigger"


@attempt("files-proc-self")
def proc_self(_: "Config") -> str:
    """Write a file of /proc that is the process's own, which a mount and its mode both allow."""
    with open("/proc/self/comm", "w") as file:
        file.write("hermes")
    return "/proc/self/comm"


@attempt("files-list-root")
def list_root(_: "Config") -> str:
    """List the folder above everything that may be read, which its mode allows."""
    return " ".join(os.listdir("/"))


@attempt("files-fd-reopen")
def fd_reopen(_: "Config") -> str:
    """Open a file of the system that is open for reading once more for writing, by its descriptor."""
    fd = os.open(_SYSTEM, os.O_RDONLY)
    os.close(os.open("/proc/self/fd/{}".format(fd), os.O_RDWR))
    return _SYSTEM


@attempt("files-proc-root")
def proc_root(config: "Config") -> str:
    """Reach the machine's files through the root folder of process 1."""
    with open("/proc/1/root" + config["outside"]["file"]) as file:
        return file.read(20)


@attempt("files-cgroup")
def cgroup(_: "Config") -> str:
    """Leave the control group, or change its bounds."""
    for top, _folders, names in os.walk("/sys/fs/cgroup"):
        for name in names:
            if name.endswith(("procs", "release_agent")) and os.access(os.path.join(top, name), os.W_OK):
                return os.path.join(top, name)
    raise Absent("no control group that can be written")


@attempt("files-mknod")
def mknod(config: "Config") -> str:
    """Make a disk."""
    path = _home(config) + "/hermes-disk"
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    os.unlink(path)
    return "a disk"


@attempt("files-fifo")
def fifo(config: "Config") -> str:
    """Make a named pipe, which needs no right but that call."""
    path = _home(config) + "/hermes-fifo"
    os.mknod(path, 0o600 | stat.S_IFIFO)
    os.unlink(path)
    return path


@attempt("files-devices")
def devices(_: "Config") -> str:
    """Open devices that reach the machine."""
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
    """Start a program that was just written."""
    path = _home(config) + "/hermes-echo"
    shutil.copy("/bin/echo", path)
    os.chmod(path, 0o755)
    try:
        return subprocess.check_output([path, "ran"], stdin=subprocess.DEVNULL).decode()
    finally:
        os.unlink(path)


@attempt("files-run-scratch")
def run_scratch(config: "Config") -> str:
    """The same in a folder that is gone afterwards."""
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
    """Map a file that was just written to run what is in it, which is how a loader starts programs."""
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
    """Make a program that runs as another user."""
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
    """The same when the file is made."""
    path = _home(config) + "/hermes-sgid"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o2755))
    mode = os.stat(path).st_mode
    os.unlink(path)
    if not mode & 0o6000:
        raise Absent("the file was made without it")
    return "{:o}".format(mode)
