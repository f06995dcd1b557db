"""Read, write, list and synchronise files.

python examples/files_and_sync.py [TARGET]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import hermes_exec.sync as hx


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with hx.open(target) as terminal, tempfile.TemporaryDirectory() as here:
        there = terminal.run("mktemp -d", check=True).stdout_text.strip()
        files = terminal.files

        # A write replaces the whole content at once: a reader sees the old or the new one.
        terminal.write(f"{there}/notes.txt", b"one\ntwo\n")
        print(files.read(f"{there}/notes.txt", offset=4))
        try:
            terminal.read(f"{there}/missing.txt")
        except FileNotFoundError as error:
            print("missing:", error.errno)

        # Only what differs is transferred.
        source = Path(here)
        (source / "src").mkdir()
        (source / "src/main.py").write_text("print('hello')\n")
        (source / "notes.log").write_text("not wanted\n")
        for _ in range(2):
            report = terminal.sync(source, f"{there}/copy", delete=True, ignore=["*.log"])
            print("sent:", report.copied)
        print(sorted(Path(path).name for path in files.glob(f"{there}/copy/**/*.py")))
        print(terminal.run(["python3", f"{there}/copy/src/main.py"]).stdout_text, end="")

        files.remove(there, recursive=True)
        print(files.exists(there))


if __name__ == "__main__":
    main(*sys.argv[1:])
