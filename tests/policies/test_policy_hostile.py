"""Hostile acts in the local sandbox, and the table of them that the documentation shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hermes_exec_backends.sandbox.host import this_machine
from tests.conftest import require_part
from tests.rigs import hostile, matrix, tables
from tests.rigs.breadth import thorough
from tests.rigs.layers import LAYERS


@thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_hostile_act_works_in_the_local_sandbox() -> None:
    require_part("bwrap", "it makes the sandboxes")
    require_part("Landlock", "the policies of skills require it", usable=this_machine().landlock_abi > 0)
    require_part("root", "it puts all of this into a network of its own", usable=os.geteuid() == 0)
    again = 'ip link set lo up && exec "$0" -m tests.rigs.matrix bubblewrap'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", again, sys.executable],
        check=True,
        cwd=matrix.ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), matrix.QUICKLY: "1"},
    )
    acts = [hostile.Act(**each) for each in json.loads(done.stdout)]
    assert len(acts) > 80
    assert [act for act in acts if act.outcome not in {"blocked", "limit", "private"}] == []


def test_the_table_in_the_documentation_shows_no_act_that_works_and_no_layer_that_is_lost_unseen() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    shown = page.partition(matrix.BEGIN)[2].partition(matrix.END)[0]
    assert all(f"| {kind} (" in shown for kind in hostile.CLASSES)
    assert all(f"| {place} " in shown for place in ("bubblewrap, as a user", "Docker", matrix.MACHINE))
    assert all(f"| {layer} |" in shown for layer in LAYERS)
    assert "**" not in shown
