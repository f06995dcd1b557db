"""The parts of a command, and the argv or the script that starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.transport.shell import scripts
from hermes_exec.transport.shell.scripts import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

STAGE_ABOVE = 16 << 10
"""Most bytes of arguments and variables that are passed directly. Kernels take 128 KiB in one argument, and some
targets join and quote all arguments into one, which can make them four times as long."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A program's argv; with ``text``, a shell's argv without ``-c``, and the text that it evaluates."""

    program: tuple[bytes, ...]
    text: bytes | None = None
    cwd: bytes = b""
    env: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    merge: bool = False

    @property
    def staged(self) -> bool:
        """Whether it must be sent as a file: it is long, or not UTF-8, which some targets cannot pass."""
        parts = (*self.program, self.text or b"", self.cwd, *self.env.values())
        return sum(map(len, parts)) > STAGE_ABOVE or not all(map(_is_text, parts))

    @property
    def _start(self) -> str:
        return scripts.START_MERGED if self.merge else scripts.START

    def argv(self, shell: str, nonce: str) -> list[str]:
        """Return the argv that starts it, if it is not staged."""
        words = self.program if self.text is None else (*self.program, b"-c", self.text)
        return [shell, "-c", self._start, "sh", nonce, self.cwd.decode(), *map(bytes.decode, words)]

    def script_argv(self, shell: str, path: str) -> list[str | bytes]:
        """Return the argv that runs its script at ``path``."""
        if self.text is None:
            return [shell, "-c", scripts.SOURCE, "sh", path]
        return [*self.program, "-c", scripts.SOURCE, self.program[0], path]

    def script(self, nonce: str, path: str) -> bytes:
        """Return the file that starts it: removes itself, sets the variables, and continues as ``argv`` does.

        Shell text follows in the same file, so that it may have any size and leaves standard input free. Its own shell
        reads
        it.
        """
        lines = [b"rm -f " + quote(path.encode())]
        lines += [b"export %b=%b" % (name, quote(value)) for name, value in self.env.items()]
        parameters = (nonce.encode(), self.cwd) + (self.program if self.text is None else ())
        lines.append(b"set -- " + b" ".join(map(quote, parameters)))
        if self.text is None:
            lines.append(self._start.encode())
        else:
            merge = "exec 2>&1\n" if self.merge else ""
            lines.append(f"{scripts.ENTER}{scripts.TELL}{merge}set --".encode())
            lines.append(self.text)
        return b"\n".join(lines) + b"\n"


def merge_env(base: Mapping[bytes, bytes], arguments: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return ``base`` with the variables of a request."""
    own: Mapping[bytes, bytes] | None = arguments.get("env")
    return {**base, **(own or {})}


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
