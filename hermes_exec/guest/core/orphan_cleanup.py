"""What guests of this user left on this machine when they were killed together with their keepers.

A guest is gone when nothing listens at the door in its folder. Its live shells are known by the FIFO in
that folder, which is in their argv; its runners are orphans with the guest's own argv and nothing but a torn
socket. All that descends from these goes too, for shells and runners are the subreapers of what they start, and
stay for as long as they have children. What outlived a shell, or took its place, is in the session's record.

Keepers sweep by themselves, and only what is certain to be of this start of this machine and of their own
table of processes: a folder that others can see too, such as one on a shared disk, may be a living guest's.
"""

import _signal
import _socket
import errno
import os
import time

from . import process_tree
from .fdutil import remove_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    Swept = tuple[str, "list[int]", str]
    """A folder, the processes that were killed, and a complaint if something could not be removed."""

_HOME = "home"
_STARTING_S = 60.0
"""A folder without a door is a guest's that starts, unless it is older."""
_PATIENCE_S = 10.0
_HEXADECIMAL = frozenset("0123456789abcdef")
_NONCE = b"<hx "
_NONCE_SIZE = 29


def boot_id() -> str:
    """Tells this start of this machine from every other one; empty where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _home() -> str:
    try:
        return "{} {}".format(boot_id(), os.readlink("/proc/self/ns/pid"))
    except OSError:
        return ""


def sign(folder: str) -> None:
    """Note in a guest's folder where it lives."""
    home = _home()
    if home:
        os.symlink(home, folder + "/" + _HOME)


def bases() -> "list[str]":
    """Where guests' folders are, in the order in which they are tried."""
    runtime = "/run/user/{}".format(os.getuid())
    found: "list[str]" = []
    for base in (runtime, "/dev/shm", "/tmp", "/var/tmp", os.environ.get("TMPDIR", "")):
        if base and base not in found and os.path.isdir(base):
            found.append(base)
    return found


def folders() -> "dict[str, list[str]]":
    """The folders of each guest of this user, by its name: one at run time, at times one on disk."""
    found: "dict[str, list[str]]" = {}
    for base in bases():
        try:
            names = [name for name in os.listdir(base) if name.startswith("hx-")]
        except OSError:
            continue
        for name in names:
            path = base + "/" + name
            if len(name) == 19 and _HEXADECIMAL.issuperset(name[3:]) and _is_own_folder(path):
                found.setdefault(name[3:], []).append(path)
    return found


def _is_own_folder(path: str) -> bool:
    try:
        entry = os.lstat(path)
    except OSError:
        return False
    return entry.st_uid == os.getuid() and entry.st_mode & 0o170000 == 0o040000


def is_gone(paths: "list[str]") -> bool:
    """Whether the guest with these folders is gone."""
    doors = [path + "/door" for path in paths if os.path.exists(path + "/door")]
    if doors:
        return not any(_listens(door) for door in doors)
    try:
        return time.time() - max(os.stat(path).st_mtime for path in paths) > _STARTING_S
    except OSError:
        return False  # it is being removed just now


def _listens(door: str) -> bool:
    knocking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        knocking.setblocking(False)
        # A guest that is stopped, or has very much to do, has a full queue: it does not refuse.
        return knocking.connect_ex(door) not in (errno.ECONNREFUSED, errno.ENOENT)
    finally:
        knocking.close()


def certain() -> "dict[str, list[str]]":
    """The folders of guests that are gone and have lived here, of which nobody else can be the judge."""
    home = _home()
    if not home:
        return {}
    listening = _listening()
    found: "dict[str, list[str]]" = {}
    for name, paths in folders().items():
        if any((path + "/door").encode() in listening for path in paths):
            continue  # whoever is in the kernel's table need not be woken by knocking
        if any(_signed(path) == home for path in paths) and is_gone(paths):
            found[name] = paths
    return found


def _signed(path: str) -> str:
    try:
        return os.readlink(path + "/" + _HOME)
    except OSError:
        return ""


def _listening() -> "set[bytes]":
    try:
        with open("/proc/net/unix", "rb") as table:
            return {line.split()[-1] for line in table}
    except OSError:
        return set()


def sweep(guests: "dict[str, list[str]]") -> "list[Swept]":
    """Kill and remove all that these gone guests left."""
    swept: "list[Swept]" = []
    for name in sorted(guests):
        first, *others = guests[name]
        ended, left = _kill(_shells_of(name, guests[name]))
        swept += [(folder, [], _remove(folder)) for folder in others]
        swept.append((first, ended, left or _remove(first)))
    return swept


def sweep_runners() -> "tuple[list[int], str]":
    """Kill the runners whose guests are gone, with all below them."""
    return _kill(_orphaned_runners())


def _ours() -> "Iterator[tuple[int, bytes]]":
    """The processes of this user with their argv, without us and those that we are below of."""
    above: "set[int]" = set()
    pid = os.getpid()
    while pid > 1:
        above.add(pid)
        pid = process_tree.stat(pid)[1]
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in above:
            argv = _argv(int(name))
            if argv and _is_own_folder("/proc/" + name):
                yield int(name), argv


def _argv(pid: int) -> bytes:
    return process_tree.read("/proc/{}/cmdline".format(pid))


def _shells_of(name: str, paths: "list[str]") -> "list[int]":
    """Its live shells: the path of their FIFO, ``…/hx-NAME/SESSION/in``, is in their argv; and what is in a record."""
    mark = b"/hx-" + name.encode() + b"/"
    recorded: "set[bytes]" = set()
    for path in paths:
        if _signed(path) == _home():  # else its pids are of another table of processes
            for session in os.listdir(path):
                recorded.update(process_tree.read(path + "/" + session + "/left").splitlines())
    return [
        pid
        for pid, argv in _ours()
        if any(rest[8:11] == b"/in" for rest in argv.split(mark)[1:])
        or b"%d %d" % (pid, process_tree.stat(pid)[2]) in recorded
    ]


def _orphaned_runners() -> "list[int]":
    found: "list[int]" = []
    for pid, argv in _ours():
        at = argv.find(_NONCE)
        nonce = argv[at : at + _NONCE_SIZE]
        if at >= 0 and nonce.endswith(b">") and _is_runner(pid) and nonce not in _argv(process_tree.stat(pid)[1]):
            found.append(pid)
    return found


def _is_runner(pid: int) -> bool:
    """A runner has /dev/null three times and its socket; no other process with a guest's argv has that."""
    folder = "/proc/{}/fd/".format(pid)
    try:
        links = {number: os.readlink(folder + number) for number in os.listdir(folder)}
    except OSError:
        return False
    plain = all(links.pop(number, "") == os.devnull for number in ("0", "1", "2"))
    return plain and [link.partition(":")[0] for link in links.values()] == ["socket"]


def _kill(pids: "list[int]") -> "tuple[list[int], str]":
    """Kill these and all below them; gives those that were killed, and a complaint if some live on."""
    roots = process_tree.living(pids)
    for root in roots:
        process_tree.send(root, _signal.SIGSTOP)  # or a shell goes on to its next command when one is killed
    for _ in range(300):  # one that is just starting a program stops when that runs, and only then it is found below it
        if all(process_tree.stat(pid)[0] in b"TtZX" for pid, _ in roots):
            break
        time.sleep(0.003)

    def targets() -> "list[int]":
        standing = [pid for pid, _ in process_tree.still(roots)]
        # Those below first: what they start meanwhile then still has its root above it, and is found.
        below = process_tree.descendants(standing)
        return below if process_tree.living(below) else standing

    killed, left = process_tree.kill_all(targets, _PATIENCE_S)
    complaint = "processes that cannot be ended: {}".format(sorted(pid for pid, _ in left)) if left else ""
    return sorted(pid for pid, _ in killed), complaint


def _remove(folder: str) -> str:
    try:
        remove_folder(folder)
    except OSError as error:
        return "{}: {}".format(error.filename, error.strerror)
    return folder + " is still there" if os.path.exists(folder) else ""
