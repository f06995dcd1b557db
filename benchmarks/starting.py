"""The start of a chat: its first prompt and its first request, beside prototypes that do nothing else.

Each is a process of its own with an empty home, which the environment configures. The prompt is measured at a terminal,
until it is on the screen, and until a key that was typed then is.
"""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.floors import EDITOR, REQUEST
from benchmarks.replies import answers, read_request

_PROMPT = b"you>"  # editors move the cursor instead of writing a space
_KEY = b"z"
_FIRST_REQUEST_MS = 300.0
_FIRST_PROMPT_MS = 150.0
_COMMAND = str(Path(sys.executable).parent / "hermes-exec")


class _Starts:
    """Starts of one program each; the endpoint answers with the last word at once."""

    def __init__(self, home: str) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._home = home
        self._env = {
            "PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm", "LANG": "C.UTF-8", "LLM_PROVIDER": "custom",
            "LLM_BASE_URL": f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1", "DEFAULT_MODEL": "m",
            "OPENAI_API_KEY": "none", "PROMPT_TOOLKIT_NO_CPR": "1",
        }  # fmt: skip

    def request(self, argv: list[str]) -> float:
        """Seconds until the program's first request arrived as a whole."""
        begin = time.perf_counter()
        with subprocess.Popen(
            argv, env=self._env, cwd=self._home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as stream:
                if not read_request(stream):
                    raise AssertionError("no request arrived")
                took = time.perf_counter() - begin
                connection.sendall(answers()[1])
                process.wait(timeout=60)
        if process.returncode:
            raise AssertionError(f"{argv[0]} ended with {process.returncode}")
        return took

    def prompt(self, argv: list[str]) -> tuple[float, float]:
        """Seconds until the prompt was on the screen, and until a key that was typed then was."""
        begin = time.perf_counter()
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self._home)
            os.execve(argv[0], argv, self._env)
        _read_until(terminal, _PROMPT)
        shown = time.perf_counter() - begin
        os.write(terminal, _KEY)
        _read_until(terminal, _KEY)
        typed = time.perf_counter() - begin
        os.write(terminal, b"\x7f\x04")  # rubs it out, and leaves
        try:
            while os.read(terminal, 65536):
                pass
        except OSError:  # the program ended
            pass
        os.close(terminal)
        os.waitpid(process, 0)
        return shown, typed

    def close(self) -> None:
        self._listening.close()


def _read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        if not select.select([terminal], [], [], 60)[0]:
            raise AssertionError(f"{text!r} is not on the screen: {seen!r}")
        seen += os.read(terminal, 65536)


def figures(rounds: int) -> list[Figure]:
    """First request and first prompt, in turns with the prototypes."""
    question = [_COMMAND, "chat", "-q", "work", "--approve", "allow"]
    ours: list[float] = []
    floor: list[float] = []
    prompts: list[tuple[float, float]] = []
    editors: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as home:
        starts = _Starts(home)
        try:
            for number in range(rounds + 1):  # the first one compiles and creates files
                took = [starts.request(question), starts.request([sys.executable, "-c", REQUEST])]
                shown = [starts.prompt([_COMMAND, "chat"]), starts.prompt([sys.executable, "-c", EDITOR])]
                if number:
                    ours.append(took[0])
                    floor.append(took[1])
                    prompts.append(shown[0])
                    editors.append(shown[1])
        finally:
            starts.close()
    request, least = median(ours) * 1e3, median(floor) * 1e3
    prompt, typed = (median([each[part] for each in prompts]) * 1e3 for part in (0, 1))
    bare, bare_typed = (median([each[part] for each in editors]) * 1e3 for part in (0, 1))
    return [
        Figure("`chat -q`: first request", "ms", request, "the limit", _FIRST_REQUEST_MS, 1.0),
        Figure("`chat -q`: first request", "ms", request, "floor: Python, asyncio, the client, one request", least),
        Figure("chat: first prompt", "ms", prompt, "the limit", _FIRST_PROMPT_MS, 1.0),
        Figure("chat: first prompt", "ms", prompt, "floor: Python, asyncio, the line editor", bare),
        Figure("chat: a key that is typed then is shown", "ms", typed, "floor: the same line editor", bare_typed),
    ]
