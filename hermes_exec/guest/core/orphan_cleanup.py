"""Cleanup after guests of this user that were killed together with their supervisors.

A guest is gone when no process listens on the control socket in its folder. Its live shells have the path of a FIFO in
that folder in their argv; its runners are orphans with the guest's own argv and one unconnected socket. All descendants
of these are killed too: shells and runners are subreapers of what they start, and stay as long as they have children.
Processes that outlived or replaced a shell are in the session's record.

Supervisors sweep by themselves, but only folders that certainly belong to this boot and this pid namespace: a folder
that others can see too, such as one on a shared disk, may belong to a running guest.
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
    """A folder, the killed processes, and an error message if something could not be removed."""

_HOME = "home"
_STARTING_S = 60.0
"""A younger folder without a control socket belongs to a guest that is starting."""
_PATIENCE_S = 10.0
_HEXADECIMAL = frozenset("0123456789abcdef")
_NONCE = b"<hx "
_NONCE_SIZE = 29


def boot_id() -> str:
    """Return the id of this boot; empty if the kernel does not provide it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _namespace() -> str:
    """The boot and the pid namespace that this process lives in; empty if unknown."""
    try:
        return "{} {}".format(boot_id(), os.readlink("/proc/self/ns/pid"))
    except OSError:
        return ""


def sign_folder(folder: str) -> None:
    """Record in a guest's folder its boot and pid namespace."""
    namespace = _namespace()
    if namespace:
        os.symlink(namespace, folder + "/" + _HOME)


def runtime_bases() -> "list[str]":
    """The parents of guests' folders, in the order in which they are tried."""
    runtime = "/run/user/{}".format(os.getuid())
    found: "list[str]" = []
    for base in (runtime, "/dev/shm", "/tmp", "/var/tmp", os.environ.get("TMPDIR", "")):
        if base and base not in found and os.path.isdir(base):
            found.append(base)
    return found


def guest_folders() -> "dict[str, list[str]]":
    """The folders of each guest of this user by name: its runtime folder, and maybe one on disk."""
    found: "dict[str, list[str]]" = {}
    for base in runtime_bases():
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
    sockets = [path + "/door" for path in paths if os.path.exists(path + "/door")]
    if sockets:
        return not any(_is_listening(path) for path in sockets)
    try:
        return time.time() - max(os.stat(path).st_mtime for path in paths) > _STARTING_S
    except OSError:
        return False  # it is just being removed


def _is_listening(path: str) -> bool:
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        # A stopped or overloaded guest has a full backlog, which gives another error.
        return probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)
    finally:
        probe.close()


def find_certain() -> "dict[str, list[str]]":
    """The folders of guests that are gone and were of this boot and pid namespace."""
    namespace = _namespace()
    if not namespace:
        return {}
    listening = _listening()
    found: "dict[str, list[str]]" = {}
    for name, paths in guest_folders().items():
        if any((path + "/door").encode() in listening for path in paths):
            continue  # its socket is in the kernel's table, so it need not be woken by a connection
        if any(_signature(path) == namespace for path in paths) and is_gone(paths):
            found[name] = paths
    return found


def _signature(path: str) -> str:
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
    """Kill the processes and remove the folders of these guests, which are gone."""
    swept: "list[Swept]" = []
    for name in sorted(guests):
        first, *others = guests[name]
        ended, left = _kill(_shells_of(name, guests[name]))
        swept += [(folder, [], _remove(folder)) for folder in others]
        swept.append((first, ended, left or _remove(first)))
    return swept


def sweep_runners() -> "tuple[list[int], str]":
    """Kill the runners whose guests are gone, with all their descendants."""
    return _kill(_find_orphaned_runners())


def _ours() -> "Iterator[tuple[int, bytes]]":
    """The processes of this user with their argv, without this one and its ancestors."""
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
    return process_tree.read_file("/proc/{}/cmdline".format(pid))


def _shells_of(name: str, paths: "list[str]") -> "list[int]":
    """A guest's live shells, whose argv has the path of a FIFO ``…/hx-NAME/SESSION/in``, and recorded processes."""
    mark = b"/hx-" + name.encode() + b"/"
    recorded: "set[bytes]" = set()
    for path in paths:
        if _signature(path) == _namespace():  # else its pids are of another namespace
            for session in os.listdir(path):
                recorded.update(process_tree.read_file(path + "/" + session + "/left").splitlines())
    return [
        pid
        for pid, argv in _ours()
        if any(rest[8:11] == b"/in" for rest in argv.split(mark)[1:])
        or b"%d %d" % (pid, process_tree.stat(pid)[2]) in recorded
    ]


def _find_orphaned_runners() -> "list[int]":
    found: "list[int]" = []
    for pid, argv in _ours():
        at = argv.find(_NONCE)
        nonce = argv[at : at + _NONCE_SIZE]
        if at >= 0 and nonce.endswith(b">") and _is_runner(pid) and nonce not in _argv(process_tree.stat(pid)[1]):
            found.append(pid)
    return found


def _is_runner(pid: int) -> bool:
    """Whether the open files are three times /dev/null and a socket, as only a runner of a guest has."""
    folder = "/proc/{}/fd/".format(pid)
    try:
        links = {number: os.readlink(folder + number) for number in os.listdir(folder)}
    except OSError:
        return False
    plain = all(links.pop(number, "") == os.devnull for number in ("0", "1", "2"))
    return plain and [link.partition(":")[0] for link in links.values()] == ["socket"]


def _kill(pids: "list[int]") -> "tuple[list[int], str]":
    """Kill these and their descendants; return the killed, and an error message if some survive."""
    roots = process_tree.living_processes(pids)
    for root in roots:
        process_tree.send(root, _signal.SIGSTOP)  # or a shell starts its next command when one is killed
    for _ in range(300):  # a vforking shell stops only once its program runs, which is then found below it
        if all(process_tree.stat(pid)[0] in b"TtZX" for pid, _ in roots):
            break
        time.sleep(0.003)

    def targets() -> "list[int]":
        standing = [pid for pid, _ in process_tree.same_processes(roots)]
        # Descendants first: anything that they start meanwhile still has the root above it, and is found.
        below = process_tree.descendants(standing)
        return below if process_tree.living_processes(below) else standing

    killed, left = process_tree.kill_all(targets, _PATIENCE_S)
    error = "processes that cannot be ended: {}".format(sorted(pid for pid, _ in left)) if left else ""
    return sorted(pid for pid, _ in killed), error


def _remove(folder: str) -> str:
    try:
        remove_folder(folder)
    except OSError as error:
        return "{}: {}".format(error.filename, error.strerror)
    return folder + " is still there" if os.path.exists(folder) else ""
