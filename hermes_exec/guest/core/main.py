"""The guest's main program: a private folder, a control socket for new connections, a supervisor, and the loop.

The supervisor is the guest's parent and the subreaper of everything below. When the guest ends, however it ends, the
supervisor kills the remaining processes and removes the folders.
"""

import _signal
import _socket
import os
import sys

from . import libc, malloc, orphan_cleanup, process_tree
from .fdutil import close_above, remove_folder
from .loop import Loop, report_exception
from .server import ClientConnection, GuestServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)
_SWEEP_S = 1.0
"""When a supervisor sweeps orphans of killed guests; later than the start, so as not to delay the first commands."""


def make_runtime_folder(name: str) -> str:
    """Create a private folder on this machine, in memory if possible, and never in a home that may be shared."""
    for base in orphan_cleanup.runtime_bases():
        path = "{}/hx-{}".format(base, name)
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        return path
    raise OSError("no folder to work in: tried /run/user, /dev/shm, /tmp, /var/tmp")


def listen(folder: str) -> "_socket.socket":
    """Open the control socket, over which bridges pass the descriptors of new connections."""
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    control.bind(folder + "/door")
    os.chmod(folder + "/door", 0o600)
    control.listen(16)
    control.setblocking(False)
    orphan_cleanup.sign_folder(folder)
    return control


def supervise(guest: int, folders: "list[str]") -> None:
    """Be the supervisor: wait for the guest's end, and clean up after it. Does not return."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    close_above(2)
    for number in (_signal.SIGHUP, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_IGN)

    def end_guest(_: int, __: object) -> None:
        os.kill(guest, _signal.SIGKILL)

    _signal.signal(_signal.SIGTERM, end_guest)
    _signal.signal(_signal.SIGALRM, lambda _, __: sweep_orphans())
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
        sweep_orphans()
    os._exit(0 if status == 0 else 1)


def sweep_orphans() -> None:
    """Clean up after killed guests, in a process of its own, so that the supervisor does not block."""
    try:
        if not orphan_cleanup.find_certain() or os.fork():
            return
    except Exception:  # noqa: BLE001  no failure here may harm the guest
        return
    try:
        os.setsid()
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        os.nice(10)
        orphan_cleanup.sweep(orphan_cleanup.find_certain())
        orphan_cleanup.sweep_runners()
    finally:
        os._exit(0)


def clean_up(folders: "list[str]") -> None:
    """Kill everything below this process, and remove the folders."""
    process_tree.kill_all(lambda: process_tree.descendants([os.getpid()]), process_tree.GIVE_UP_S)
    for folder in folders:
        remove_folder(folder)


def _accept_fd(control: "_socket.socket") -> int:
    """Accept a connection and return its descriptor, by the method under socket.accept, which typeshed lacks."""
    return control._accept()[0]  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001  see above


def _accept(server: GuestServer, control: "_socket.socket") -> None:
    """Accept a bridge, which passes the descriptors of a new connection and waits until that is closed."""
    try:
        number = _accept_fd(control)
    except OSError:
        return  # the bridge is gone already
    bridge = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, number)
    bridge.setblocking(False)

    def receive_descriptors() -> None:
        server.loop.ignore_read(number)
        ancillary: "list[tuple[int, int, bytes]]" = []
        try:
            ancillary = bridge.recvmsg(1, _socket.CMSG_SPACE(8), _CLOEXEC)[1]
        except OSError:
            pass  # handled as no descriptors
        if not ancillary:
            bridge.close()
            return
        data: bytes = ancillary[0][2]
        connection = ClientConnection(
            server, int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:8], sys.byteorder)
        )
        connection.on_closed = bridge.close

    server.loop.on_read(number, receive_descriptors)


def main(load_part: "Any", nonce: str, guarded: bool) -> None:
    """Be a guest on descriptors 0 and 1, until no client or job needs it; ``nonce`` is the first output.

    The memory of a ``guarded`` one, and of its forks, is closed to other processes of the same user.
    """
    if guarded:
        libc.become_undumpable()
    close_above(2)
    os.write(1, nonce.encode())
    name = os.urandom(8).hex()
    folder = make_runtime_folder(name)
    control = listen(folder)
    identity = {
        "id": name,
        "folder": folder,
        "host": os.uname().nodename,
        "boot": orphan_cleanup.boot_id(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "uid": os.getuid(),
    }
    os.chdir("/")
    folders = ["/var/tmp/hx-" + name, "/tmp/hx-" + name, folder]  # the one with the control socket goes last
    supervisor = os.getpid()
    guest = os.fork()
    if guest:
        supervise(guest, folders)
    try:
        os.setsid()
        for number in (_signal.SIGHUP, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_IGN)
        malloc.keep_freed_memory()
        loop = Loop()
        server = GuestServer(loop, identity, folder)
        server.load_part = load_part
        loop.on_read(control.fileno(), lambda: _accept(server, control))
        fd_in, fd_out = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        ClientConnection(server, fd_in, fd_out)
        loop.run()
        if os.getppid() != supervisor:  # it was killed
            clean_up(folders)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  printed to standard error, of which the link keeps the end
        report_exception(error)
    finally:
        os._exit(1)
