"""Call one function of a skill, and write its result as the only JSON document on standard output."""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external
import _json
import atexit
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable
    from types import ModuleType
    from typing import Any, NoReturn


PROXY = "/app/net/egress.sock"
BRIDGE = ("127.0.0.1", 3128)


def call(folder: str, entry: str, function: str, packages: str) -> None:
    """Call the function with the arguments on standard input; what it prints goes to the log."""
    if os.path.exists(PROXY):  # noqa: PTH110  importing pathlib takes as long as starting the interpreter
        bridge()
    own = os.dup(1)  # not inherited by the skill's child processes
    os.dup2(2, 1)
    request = marshal.load(sys.stdin.buffer)  # noqa: S302  it comes from the gate itself
    script = f"{folder}/{entry}"
    sys.path[:0] = [script.rpartition("/")[0], *([packages] if packages else [])]
    sys.argv = [script]
    code = 1
    try:
        text = to_json({"result": call_function(getattr(load(script), function), request)})
        code = 0
    except BaseException as error:  # noqa: BLE001  SystemExit is reported, too
        import traceback

        traceback.print_exc()
        text = to_json({"error": describe(error)})
    sys.stdout.flush()
    data = text.encode()
    while data:
        data = data[os.write(own, data) :]
    os.close(own)
    finish(code)


def finish(code: int) -> NoReturn:
    """Exit as an interpreter does: join threads, then run exit functions. Modules are not torn down."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # noqa: SLF001  what the interpreter calls
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the same
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def bridge() -> None:
    """Forward connections from the loopback port where programs expect a proxy to the proxy, in a process of its own.

    It is a convenience without authority: the proxy, outside of the sandbox, decides which hosts may be reached.
    """
    import socket

    listener = socket.create_server(BRIDGE)
    if os.fork():
        listener.close()
        return
    import threading

    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    while True:
        there, _ = listener.accept()
        threading.Thread(target=relay, args=(there,), daemon=True).start()


def relay(one: socket.socket) -> None:
    """Copy in both directions until both have ended."""
    import socket
    import threading

    other = socket.socket(socket.AF_UNIX)
    other.connect(PROXY)
    back = threading.Thread(target=copy, args=(other, one), daemon=True)
    back.start()
    copy(one, other)
    back.join()
    one.close()
    other.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy in one direction until it ends."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(1)
    except OSError:
        return


def to_json(answer: dict[str, Any]) -> str:
    """Return the answer as JSON, like json.dumps. Importing that module takes as long as starting the interpreter."""
    encoder = _json.make_encoder({}, unknown, _json.encode_basestring_ascii, None, ": ", ", ", False, False, False)
    return "".join(encoder(answer, 0))


def unknown(value: Any) -> Any:
    """Refuse a value that JSON cannot represent."""
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def load(script: str) -> ModuleType:
    """Import the script under its own name."""
    name = script.rpartition("/")[2].removesuffix(".py")
    spec = _frozen_importlib_external.spec_from_file_location(name, script)
    if spec is None or spec.loader is None:
        raise ImportError(script)
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def call_function(function: Any, request: Any) -> Any:
    """Call the function, and return its result; a coroutine is awaited."""
    given = function(*request) if isinstance(request, list) else function(**request)
    if hasattr(given, "__await__"):
        import asyncio

        return asyncio.run(wait_for(given))
    return given


async def wait_for(given: Awaitable[Any]) -> Any:
    """Return the result of an awaitable."""
    return await given


def describe(error: BaseException) -> dict[str, str]:
    """Describe an error in short plain texts."""
    return {
        "type": type(error).__name__[:100],
        "message": str(error)[:500],
        "missing": (error.name or "")[:100] if isinstance(error, ModuleNotFoundError) else "",
    }


def main() -> None:
    """Run the program with its arguments."""
    call(*sys.argv[1:5])


if __name__ == "__main__":
    main()
