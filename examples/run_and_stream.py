"""Run commands and read their output while they run.

Shows the difference between text and an argv list, the result of a command that fails, a timeout that ends every
process of a command, and a stream in both directions.

    python examples/run_and_stream.py [TARGET]
"""

from __future__ import annotations

import sys

import hermes_exec.sync as hx
from hermes_exec import CommandFailed


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with hx.open(target) as terminal:
        # Text runs in the terminal's shell; a list is a program with its arguments, and no shell reads it.
        print(terminal.run("echo $((6 * 7))").stdout_text, end="")
        print(terminal.run(["printf", "%s\n", "$((6 * 7))"]).stdout_text, end="")

        # A command that fails is a result. `check=True` raises instead.
        result = terminal.run("echo oops >&2; exit 3")
        print(result.exit_code, result.stderr_text, end="")
        try:
            terminal.run("exit 4", check=True)
        except CommandFailed as error:
            print("raised:", error.result.exit_code)

        # A timeout ends everything that the command started, and keeps the output so far.
        result = terminal.run("echo begun; sleep 300 & sleep 300", timeout=0.5)
        print(result.timed_out, result.stdout_text, end="")

        # A stream returns output as it arrives; the command ends with the block.
        with terminal.stream("while read -r line; do echo got $line; done", interactive=True) as events:
            events.write("one\ntwo\n")
            events.close_stdin()
            for event in events:
                if event.kind == "stdout":
                    print(event.data.decode(), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
