"""The first process of a sandbox: confines itself and a child, and the child becomes the program.

It runs in the sandbox and is sent there as source: standard library only, Python 3.6 and later, no slow imports. It
receives the specification in one message and reports in another what it applied: on a socket or, where no descriptor
can be inherited, on its standard input and output before the program uses them. Then the child waits for the start
message, so that it can be inspected from outside in the state in which it becomes the program. If a required mechanism
is not available, the launcher reports that and exits without starting the program.

The order matters. Mounts need the one capability that is left until then. An AppArmor profile is requested before
Landlock, which may forbid access to /proc. The system call filter is last, because it may forbid the set-up of the
other mechanisms; it has to allow read, write, close, execve and exit_group.

This process is process 1 of the sandbox. It reaps orphans. Processes that it started cannot write to its memory (it is
not dumpable). It is confined like them before the program begins, and its end ends all of them.
"""

import _signal
import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER

from .mechanisms import (
    MechanismError,
    apply_landlock,
    become_undumpable,
    drop_privileges,
    load_filter,
    load_observed_filter,
    mount_all,
    request_profile,
    set_rlimits,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

MOST_DESCRIPTORS = 4096
STREAMS = 1
GO = b"go"


def main(control: int, spec: "dict[str, Any]") -> None:
    """Apply ``spec``, report on the socket ``control``, and start the program on its start message.

    It returns only in the program's process, and only if this interpreter runs the program.

    With ``control`` 1 it reports on standard output, each message after its length, and waits for the start message on
    standard input; later data on both belongs to the program.
    """
    child = 0
    report: "dict[str, str]" = {}
    try:
        if control != STREAMS:
            os.set_inheritable(control, False)
            os.closerange(3, control)
        os.closerange(max(3, control + 1), MOST_DESCRIPTORS)
        os.umask(0o022)
        for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):  # Python changes their disposition
            _signal.signal(number, _signal.SIG_DFL)
        if spec["nested"] is not None:
            from . import userns

            userns.enter(spec["nested"])
            userns.close_mounts(spec["writable"])
        mount_all(spec, report)
        drop_privileges()
        theirs, ours = os.pipe()
        child = os.fork()
    except BaseException as error:  # after any error nothing may be started
        fail(control, error)
    if child == 0:
        os.close(ours)
        become_program(control, spec, report, theirs)()
        return  # the interpreter exits as usual
    try:
        if spec["alarm"]:
            _signal.signal(_signal.SIGALRM, exit_late)
            _signal.alarm(spec["alarm"])
        become_undumpable()
        apply_landlock(spec, {})
        load_filter(spec["seccomp"], spec)
        os.write(ours, GO)
        os.close(ours)
        os.close(theirs)
    except BaseException as error:
        fail(control, error)
    reap(control, child)


def inline(spec: "dict[str, Any]") -> None:
    """Confine this process, without an observer, and become the program: for a guest of this project.

    A guest is source text for an interpreter with the same options as this one, so this one runs it.
    """
    report: "dict[str, str]" = {}
    try:
        drop_privileges()
        set_rlimits(spec, report)
        request_profile(spec, report)
        apply_landlock(spec, report)
        load_filter(spec["seccomp"], spec)
    except BaseException as error:
        os.write(2, "the sandbox cannot be confined: {}\n".format(error).encode("utf-8", "replace"))
        os._exit(125)
    argv = spec["argv"]
    if argv[1:2] == [b"-ISc"] and os.fsencode(sys.executable) == argv[0] and not report.get("apparmor"):
        sys.argv = ["-c"] + [os.fsdecode(word) for word in argv[3:]]
        exec(argv[2].decode(), {"__name__": "__main__"})
        os._exit(0)
    os.execvp(argv[0], argv)


def become_program(control: int, spec: "dict[str, Any]", report: "dict[str, str]", first: int) -> "Callable[[], None]":
    """In the child: apply the rest and become the program. Returns only if this interpreter runs the program.

    Process 1 reports on ``first`` that it is confined; before that no untrusted code may run next to it.
    """
    try:
        os.setsid()
        os.chdir(spec["cwd"])
        begin = prepare(spec)
        set_rlimits(spec, report)
        request_profile(spec, report)
        apply_landlock(spec, report)
        argv, env = spec["argv"], spec["env"]
        lines = ["{} {}".format(name, value) for name, value in sorted(report.items())]
        if control == STREAMS:
            check_program(argv[0])
        send(control, "\n".join(["applied", *lines]).encode())
        if os.read(first, len(GO)) != GO:
            os._exit(125)
        os.close(first)
        if spec["observed"]:
            send_listener(control, spec["observed"])
        else:
            send(control, b"ready filtered" if load_filter(spec["seccomp"], spec) else b"ready")
        if os.read(0 if control == STREAMS else control, len(GO)) != GO:
            os._exit(125)
        if begin is None:
            os.execve(argv[0], argv, env)
        if control != STREAMS:
            os.close(control)
        return begin
    except BaseException as error:
        fail(control, error)


def send_listener(control: int, program: bytes) -> None:
    """Load the filter and send its notification descriptor away, so that no process in the sandbox holds it."""
    import _socket  # before the filter, which may forbid what an import needs

    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control)
    listener = load_observed_filter(program)
    given = listener.to_bytes(4, sys.byteorder)
    channel.sendmsg([b"ready filtered"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    os.close(listener)
    channel.detach()


def exit_late(_number: int, _frame: "Any") -> None:
    """Exit on the alarm, because the process that watched the sandbox has died."""
    os._exit(137)


def check_program(path: bytes) -> None:
    """Fail if there is no such program, where a later failure could not be reported."""
    if not os.access(path, os.X_OK):
        raise MechanismError("{}: there is no such program".format(os.fsdecode(path)))


def prepare(spec: "dict[str, Any]") -> "Callable[[], None] | None":
    """Return the function that begins a program in this interpreter; None if the program needs an exec.

    A program for the same interpreter and options saves a second start, and imports before the start message.
    Its text is ours: it defines ``main``, and untrusted code runs only once that is called. An AppArmor profile takes
    effect with an exec, so it needs one.
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
    exec(marshal.loads(code) if same else compile(argv[2].decode(), "<string>", "exec"), own)  # noqa: S302  our own code
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


def send(control: int, message: bytes) -> None:
    """Send one message with one write."""
    os.write(control, len(message).to_bytes(4, "big") + message if control == STREAMS else message)


def fail(control: int, error: BaseException) -> "NoReturn":
    """Report the error and exit."""
    what = str(error) if isinstance(error, MechanismError) else "launcher {}: {}".format(type(error).__name__, error)
    try:
        send(control, b"failed " + what.encode("utf-8", "replace")[:4000])
    finally:
        os._exit(125)


def reap(control: int, child: int) -> None:
    """Act as process 1 until the program has ended, and report its status. Does not return."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        except ChildProcessError:
            os._exit(125)
        if pid == child:
            if control == STREAMS:  # only our exit code reports its status
                os._exit(128 + (status & 0x7F) if status & 0x7F else status >> 8)
            try:
                os.write(control, "ended {}".format(status).encode())
                os.read(control, 16)  # leftovers are counted outside, and end with this process
            finally:
                os._exit(0)
