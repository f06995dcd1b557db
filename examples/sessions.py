"""Use live shells: state persists within a session, and sessions are independent of each other.

python examples/sessions.py [TARGET]
"""

from __future__ import annotations

import sys

import hermes_exec.sync as hx


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with hx.open(target, env={"PROJECT": "demo"}) as terminal:
        # Directory, variables and functions of the default session persist from one command to the next.
        terminal.run('cd /tmp; greet() { echo "$1 from $PROJECT in $PWD"; }')
        print(terminal.run("greet hello").stdout_text, end="")

        # Another session has a shell of its own, with its own directory and variables.
        with terminal.session(cwd="/", env={"PROJECT": "other"}) as session:
            print(session.run("echo $PROJECT in $PWD").stdout_text, end="")
            print(session.run("greet hello").exit_code)  # 127: that function belongs to the first shell

        # A shell that ends is replaced, and the new one has its state.
        result = terminal.run("exit 5")
        print(result.exit_code, result.shell)
        print(terminal.run("greet again").stdout_text, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
