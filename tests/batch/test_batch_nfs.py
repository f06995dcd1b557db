"""The folder of a run on a real NFS server, used by two clients at once, each with caches of its own."""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest

import hermes_exec
import hermes_exec_agent
import hermes_exec_backends
import hermes_exec_policies
from tests.rigs import vm
from tests.rigs.breadth import leave_out

leave_out("takes long")

_PACKAGES = (hermes_exec, hermes_exec_agent, hermes_exec_backends, hermes_exec_policies)
_SEEN_S = 10.0
"""A client of NFS may remember for a minute that a file is missing."""


@pytest.mark.timeout(400)
def test_two_clients_share_a_run() -> None:
    found, trials, events = _prove(1), 16, 60
    claims = found["prove_claims"]
    assert (claims["trials"], claims["won_once"], claims["named"], claims["left"]) == (trials, trials, trials, [])
    assert found["prove_ledger"]["drawn"] == 400
    assert found["prove_ledger"]["totals"] == [400, 400]
    assert found["prove_results"]["whole"] == [2, 2]
    assert found["prove_results"]["most_s"] < _SEEN_S
    assert found["prove_logs"]["whole"] == [True, True]
    assert found["prove_logs"]["followed"] == [{"right": True, "seen": events}] * 2
    assert found["prove_state"]["todo"] == [trials - 4] * 2
    assert found["prove_state"]["done"] == [4, 4]
    assert found["prove_state"]["latest"] == [2, 2]
    assert max(found["prove_control"]["delays_s"]) < _SEEN_S
    assert max(found["prove_control"]["silences_s"]) < 1
    ((why, _),) = found["prove_lost_reply"]["refused"]
    assert why == "File exists"
    assert [found["prove_lost_reply"][name] for name in ("won", "again", "other")] == [True, False, False]


def _prove(scale: int) -> dict[str, dict[str, Any]]:
    """Do the proofs in a machine, where this one's files are below /lower."""
    roots = [Path(__file__).parents[2], *(Path(each.__path__[0]).parent for each in _PACKAGES)]
    paths = dict.fromkeys([*map(str, roots), sysconfig.get_path("purelib")])
    with tempfile.TemporaryDirectory(dir="/tmp") as share:
        vm.machine()
        environ = {
            "PYTHONPATH": ":".join(f"/lower{path}" for path in paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MODULES": f"/lower{vm.MODULES}",
        }
        python = f"{sys.base_prefix}/bin/python3"
        words = [*(f"{name}={value}" for name, value in environ.items()), python, "-m", "tests.rigs.nfs_proofs"]
        done = vm.run(["env", *words, str(scale)], Path(share), seconds=380 * scale)
    assert done.code == 0, done.err
    found: dict[str, dict[str, Any]] = json.loads(done.out)
    return found
