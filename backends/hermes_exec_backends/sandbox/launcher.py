"""The first process of a sandbox: confines itself and a child, and the child becomes the program.

It runs inside, sent as source: standard library only, Python 3.6 and later, nothing that is slow to import. What it
is to apply comes as one message, and what it applied goes back as another: on a socket, or where none can be handed
over, on its standard input and output before they are the program's. Then the child waits for the word, so that it can
be looked at from outside in the state in which it becomes the program. Whatever is asked for,
required and not to be had ends all of this before that.

The order has reasons. Mounts need the one capability that is left until then. A profile of AppArmor is asked for
before Landlock, which may close /proc. The system call filter comes last, since it may forbid what sets up the rest;
of what comes after it, it has to allow read, write, close, execve and exit_group.

This process is process 1 of the sandbox. It reaps orphans, cannot be written to by those that it started (it is not
dumpable), is confined as they are, before the program begins, and takes all of them with it when that has ended.
"""

import _signal
import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER

from .mechanisms import (
    Failed,
    ask_for_profile,
    become_undumpable,
    confine,
    drop_privileges,
    filter_and_tell,
    filter_calls,
    limit,
    mount_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

MOST_DESCRIPTORS = 4096
STREAMS = 1
GO = b"go"


def main(control: int, spec: "dict[str, Any]") -> None:
    """Apply ``spec``, tell on the socket ``control``, and start the program on its word.

    It returns in the program's process alone, and only where that is this very interpreter.

    With ``control`` 1 it tells on standard output, each message with its length before it, and waits for the word on
    standard input; what comes after that on either is the program's.
    """
    child = 0
    report: "dict[str, str]" = {}
    try:
        if control != STREAMS:
            os.set_inheritable(control, False)
            os.closerange(3, control)
        os.closerange(max(3, control + 1), MOST_DESCRIPTORS)
        os.umask(0o022)
        for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):  # which Python treats in its own way
            _signal.signal(number, _signal.SIG_DFL)
        if spec["nested"] is not None:
            from . import userns

            userns.enter(spec["nested"])
            userns.close_mounts(spec["writable"])
        mount_all(spec, report)
        drop_privileges()
        theirs, ours = os.pipe()
        child = os.fork()
    except BaseException as error:  # whatever it is, nothing may be started
        give_up(control, error)
    if child == 0:
        os.close(ours)
        become(control, spec, report, theirs)()
        return  # as any interpreter at the end of its program
    try:
        if spec["alarm"]:
            _signal.signal(_signal.SIGALRM, end)
            _signal.alarm(spec["alarm"])
        become_undumpable()
        confine(spec, {})
        filter_calls(spec["seccomp"], spec)
        os.write(ours, GO)
        os.close(ours)
        os.close(theirs)
    except BaseException as error:
        give_up(control, error)
    reap(control, child)


def inline(spec: "dict[str, Any]") -> None:
    """Confine this very process, which nobody watches, and become the program: in front of a guest of ours.

    A guest comes as text for an interpreter that was started just as this one, so it is run by this one.
    """
    report: "dict[str, str]" = {}
    try:
        drop_privileges()
        limit(spec, report)
        ask_for_profile(spec, report)
        confine(spec, report)
        filter_calls(spec["seccomp"], spec)
    except BaseException as error:
        os.write(2, "the sandbox cannot be confined: {}\n".format(error).encode("utf-8", "replace"))
        os._exit(125)
    argv = spec["argv"]
    if argv[1:2] == [b"-ISc"] and os.fsencode(sys.executable) == argv[0] and not report.get("apparmor"):
        sys.argv = ["-c"] + [os.fsdecode(word) for word in argv[3:]]
        exec(argv[2].decode(), {"__name__": "__main__"})
        os._exit(0)
    os.execvp(argv[0], argv)


def become(control: int, spec: "dict[str, Any]", report: "dict[str, str]", first: int) -> "Callable[[], None]":
    """In the child: the rest, then the program. Returns only where that is a text for this very interpreter.

    On ``first`` process 1 says that it is confined itself, before which nothing foreign may run beside it.
    """
    try:
        os.setsid()
        os.chdir(spec["cwd"])
        begin = prepared(spec)
        limit(spec, report)
        ask_for_profile(spec, report)
        confine(spec, report)
        argv, env = spec["argv"], spec["env"]
        lines = ["{} {}".format(name, value) for name, value in sorted(report.items())]
        if control == STREAMS:
            see_program(argv[0])
        tell(control, "\n".join(["applied", *lines]).encode())
        if os.read(first, len(GO)) != GO:
            os._exit(125)
        os.close(first)
        if spec["observed"]:
            hand_over(control, spec["observed"])
        else:
            tell(control, b"ready filtered" if filter_calls(spec["seccomp"], spec) else b"ready")
        if os.read(0 if control == STREAMS else control, len(GO)) != GO:
            os._exit(125)
        if begin is None:
            os.execve(argv[0], argv, env)
        if control != STREAMS:
            os.close(control)
        return begin
    except BaseException as error:
        give_up(control, error)


def hand_over(control: int, program: bytes) -> None:
    """Load the filter, and give away the descriptor on which its questions are answered: nobody in here has it."""
    import _socket  # before the filter, which may forbid what an import needs

    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control)
    listener = filter_and_tell(program)
    given = listener.to_bytes(4, sys.byteorder)
    channel.sendmsg([b"ready filtered"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    os.close(listener)
    channel.detach()


def end(_number: int, _frame: "Any") -> None:
    """Be late: whoever watched is gone."""
    os._exit(137)


def see_program(path: bytes) -> None:
    """See that there is a program to start, where there is no way to tell of it later."""
    if not os.access(path, os.X_OK):
        raise Failed("{}: there is no such program".format(os.fsdecode(path)))


def prepared(spec: "dict[str, Any]") -> "Callable[[], None] | None":
    """What begins the program, where it is a text for an interpreter that is started just as this one was.

    That saves a second start, and what the text imports is there before the word comes. The text is ours: it defines
    ``main``, and what is foreign begins when that is called. A profile of AppArmor comes with a start, so it needs one.
    """
    argv = spec["argv"]
    if not spec["in_place"] or os.fsencode(sys.executable) != argv[0] or spec["apparmor"]:
        return None
    own = vars(sys.modules["__main__"])
    for name in [name for name in own if not name.startswith("__")]:
        del own[name]
    own["__name__"] = "program"
    version, code = spec["in_place"]
    same = version == MAGIC_NUMBER
    exec(marshal.loads(code) if same else compile(argv[2].decode(), "<string>", "exec"), own)  # noqa: S302  it is ours
    own["__name__"] = "__main__"
    sys.argv = ["-c"] + [os.fsdecode(word) for word in argv[3:]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "confined"]:
        del sys.modules[name]
    os.environb.clear()
    os.environb.update(spec["env"])
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_IGN)
    begin: "Callable[[], None]" = own["main"]
    return begin


def tell(control: int, message: bytes) -> None:
    """Send one message, in one piece."""
    os.write(control, len(message).to_bytes(4, "big") + message if control == STREAMS else message)


def give_up(control: int, error: BaseException) -> "NoReturn":
    """Say why, and end."""
    what = str(error) if isinstance(error, Failed) else "launcher {}: {}".format(type(error).__name__, error)
    try:
        tell(control, b"failed " + what.encode("utf-8", "replace")[:4000])
    finally:
        os._exit(125)


def reap(control: int, child: int) -> None:
    """Be process 1 until the program has ended, and tell how it did. Does not return."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        except ChildProcessError:
            os._exit(125)
        if pid == child:
            if control == STREAMS:  # its own exit code is all that is told of it
                os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)
            try:
                os.write(control, "ended {}".format(status).encode())
                os.read(control, 16)  # what is left is counted outside, and dies with this process
            finally:
                os._exit(0)
