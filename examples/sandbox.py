"""Run a program in a sandbox of this machine's own system.

The sandbox has no network, a read-only system, and an empty home directory in memory. It needs the program bubblewrap.
If no sandbox can be created, the example prints the reason and runs nothing.

    python examples/sandbox.py
"""

from __future__ import annotations

import sys

import hermes_exec.sync as hx
from hermes_exec import PlaceUnavailable, Unsupported

ATTEMPTS = {
    "write to the system": "touch /usr/attempt",
    "read the home of this user": "ls -A ~ | grep .",
    "open a connection": "exec 3<>/dev/tcp/192.0.2.1/80",
    "write to its own /tmp": "echo data > /tmp/file && cat /tmp/file",
}


def main(target: str = "bubblewrap") -> None:
    """Run the example in the sandbox ``target``."""
    try:
        terminal = hx.open(target)
    except (PlaceUnavailable, Unsupported) as error:
        print("no sandbox here:", error)
        return
    with terminal:
        for name, command in ATTEMPTS.items():
            result = terminal.run(command, timeout=10)
            print(f"{name}: {'possible' if result.ok else 'denied'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
