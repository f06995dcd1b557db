"""The guest's loop, with what a peer may send as a time."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from hermes_exec.guest.core.loop import Loop
loop = Loop()
called = []
loop.call_later(float({delay!r}), lambda: called.append("odd"))
loop.call_later(0.05, loop.stop)
loop.run()
print(called)
"""


@pytest.mark.parametrize(("delay", "called"), [(math.nan, "['odd']"), (-1.0, "['odd']"), (math.inf, "[]")])
def test_a_time_that_is_no_number_stops_no_other_timer(delay: float, called: str) -> None:
    program = PROGRAM.format(root=str(ROOT), delay=str(delay))
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == called


FAULT = """
import sys
sys.path.insert(0, {root!r})
from hermes_exec.guest.core.loop import Loop
loop = Loop()

def fail():
    loop.call_soon(lambda: print("called") or loop.stop())
    raise ValueError("a fault")

loop.call_later(0, fail)
loop.call_later(600, loop.stop)
loop.run()
"""


def test_what_is_to_be_called_soon_does_not_wait_for_the_next_event_after_a_fault() -> None:
    argv = [sys.executable, "-I", "-c", FAULT.format(root=str(ROOT))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, "a fault" in done.stderr) == ("called\n", True)
