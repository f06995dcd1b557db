"""The guest's life: a private folder, a socket to come back to, a keeper, and the loop until nobody needs it.

The keeper is the guest's parent and the subreaper of everything. When the guest ends, however it ends,
the keeper kills what is left and removes the folders.
"""

import _signal
import _socket
import os
import sys

from . import libc, malloc, orphan_cleanup, process_tree
from .connection import Connection
from .fdutil import close_above, remove_folder
from .loop import Loop, report
from .server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)


_SWEEP_S = 1.0
"""When a keeper looks for what others have left: no earlier, because the first commands are not to wait for it."""


def make_folder(name: str) -> str:
    """A private folder on this very machine, in memory where possible: never a shared home."""
    for base in orphan_cleanup.bases():
        path = "{}/hx-{}".format(base, name)
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        return path
    raise OSError("no folder to work in: tried /run/user, /dev/shm, /tmp, /var/tmp")


def listen(folder: str) -> "_socket.socket":
    """The socket to which a new connection's descriptors are handed."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    door.bind(folder + "/door")
    os.chmod(folder + "/door", 0o600)
    door.listen(16)
    door.setblocking(False)
    orphan_cleanup.sign(folder)
    return door


def keep(guest: int, folders: "list[str]") -> None:
    """Be the keeper: wait for the guest's end, clean up after it. Does not return."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    close_above(2)
    for number in (_signal.SIGHUP, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_IGN)

    def end_guest(_: int, __: object) -> None:
        os.kill(guest, _signal.SIGKILL)

    _signal.signal(_signal.SIGTERM, end_guest)
    _signal.signal(_signal.SIGALRM, lambda _, __: sweep())
    libc.become_subreaper()
    _signal.setitimer(_signal.ITIMER_REAL, _SWEEP_S)
    status = 0
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == guest:
            status = ended
            break
    early = _signal.setitimer(_signal.ITIMER_REAL, 0)[0] > 0
    clean_up(folders)
    if early:
        sweep()
    os._exit(0 if status == 0 else 1)


def sweep() -> None:
    """Remove what killed guests left, in a process of its own, because the keeper must not have to wait."""
    try:
        if not orphan_cleanup.certain() or os.fork():
            return
    except Exception:  # noqa: BLE001  whatever it is, the guest that is kept comes first
        return
    try:
        os.setsid()
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        os.nice(10)
        orphan_cleanup.sweep(orphan_cleanup.certain())
        orphan_cleanup.sweep_runners()
    finally:
        os._exit(0)


def clean_up(folders: "list[str]") -> None:
    """End everything below this process, and remove what was made on disk."""
    process_tree.kill_all(lambda: process_tree.descendants([os.getpid()]), process_tree.GIVE_UP_S)
    for folder in folders:
        remove_folder(folder)


def _accepted(door: "_socket.socket") -> int:
    """The descriptor of the next connection; what socket.accept is made of, which typeshed does not name."""
    return door._accept()[0]  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001  see above


def _accept(server: Server, door: "_socket.socket") -> None:
    """A bridge hands over the descriptors of a new connection, and waits until it is closed."""
    try:
        number = _accepted(door)
    except OSError:
        return  # it has hung up already
    bridge = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, number)
    bridge.setblocking(False)

    def handed_over() -> None:
        server.loop.ignore_read(number)
        ancillary: "list[tuple[int, int, bytes]]" = []
        try:
            ancillary = bridge.recvmsg(1, _socket.CMSG_SPACE(8), _CLOEXEC)[1]
        except OSError:
            pass  # told by there being nothing
        if not ancillary:
            bridge.close()
            return
        data: bytes = ancillary[0][2]
        connection = Connection(
            server, int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:8], sys.byteorder)
        )
        connection.on_closed = bridge.close

    server.loop.on_read(number, handed_over)


def main(load_part: "Any", nonce: str, guarded: bool) -> None:
    """Be a guest on descriptors 0 and 1 until nobody needs it; ``nonce`` is what it writes first.

    A ``guarded`` one, and all that is forked from it, is no file below /proc that its own user may open.
    """
    if guarded:
        libc.become_undumpable()
    close_above(2)
    os.write(1, nonce.encode())
    name = os.urandom(8).hex()
    folder = make_folder(name)
    door = listen(folder)
    identity = {
        "id": name,
        "folder": folder,
        "host": os.uname().nodename,
        "boot": orphan_cleanup.boot_id(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "uid": os.getuid(),
    }
    os.chdir("/")
    folders = ["/var/tmp/hx-" + name, "/tmp/hx-" + name, folder]  # the one that others look for goes last
    keeper = os.getpid()
    guest = os.fork()
    if guest:
        keep(guest, folders)
    try:
        os.setsid()
        for number in (_signal.SIGHUP, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_IGN)
        malloc.keep_freed_memory()
        loop = Loop()
        server = Server(loop, identity, folder)
        server.load_part = load_part
        loop.on_read(door.fileno(), lambda: _accept(server, door))
        fd_in, fd_out = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        Connection(server, fd_in, fd_out)
        loop.run()
        if os.getppid() != keeper:  # somebody has killed it
            clean_up(folders)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  said on standard error, which the link keeps
        report(error)
    finally:
        os._exit(1)
