"""The ``sh`` scripts that run on the first node of an allocation.

The placeholder is the batch job itself: the allocation lasts as long as it does. It waits while the orchestrator's
presence runs (a step whose standard input the orchestrator holds). After its end, it waits for the lease, and longer
only while a guest or the lease process of a container runs, which have leases of their own. It inspects the node's
processes and never queries the controller.
"""

from __future__ import annotations

_COMMON = r"""
ours() {
    for file in $(grep -las -e "$1" /proc/[0-9]*/cmdline); do
        tr '\0' '\n' <"${file%cmdline}environ" 2>/dev/null | grep -qx "SLURM_JOB_ID=$SLURM_JOB_ID" && return
    done
    return 1
}
busy() { ours '<[h]x ' || ours '[h]x ready \$(id'; }
"""

_LOOP = r"""
trap 'exit 0' TERM
seen=$(date +%s)
while sleep "$pause"; do
    now=$(date +%s)
    if ours '[h]x-presence'; then seen=$now
    elif [ $((now - seen)) -ge "$lease" ] && ! busy; then exit 0
    fi
done
"""

ENTER = """\
unset SLURM_NTASKS SLURM_NPROCS SLURM_NNODES SLURM_TASKS_PER_NODE
export SLURM_JOB_NODELIST="$0"
exec "$@\""""
"""This step has one task on one node, which an inner ``srun`` would inherit. Parameter: all nodes."""

PRESENCE = "echo hx ready; cat >/dev/null; exit"
"""Started with the name ``hx-presence``, by which the placeholder finds it."""
PRESENCE_NAME = "hx-presence"


def placeholder(lease_s: float) -> bytes:
    """Return the batch script."""
    pause = max(1, min(5, int(lease_s / 4)))
    return f"#!/bin/sh\nlease={int(lease_s)} pause={pause}\n{_COMMON}{_LOOP}".encode()
