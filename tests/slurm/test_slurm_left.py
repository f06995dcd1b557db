"""A job in an allocation of a process that was killed is found again by others, and the allocation ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rigs.bounded import wait_until
from tests.rigs.killed import Left

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.slurm import Cluster

CONFIG = """
[backends.here]
type = "local"
env = {{ SLURM_CONF = "{conf}" }}
[backends.node]
type = "slurm"
via = "here"
memory = "512 MiB"
lease_s = 4
"""


def configured(folder: Path, cluster: Cluster) -> Path:
    config = folder / "hermes.toml"
    config.write_text(CONFIG.format(conf=cluster.conf))
    return config


def test_other_processes_find_the_same_allocation(cluster: Cluster, tmp_path: Path) -> None:
    left = Left(tmp_path, configured(tmp_path, cluster), "node")
    before = cluster.jobs()
    assert len(before) == 1
    left.ends_as_it_should()
    assert cluster.jobs() == before
    left.forget()
    wait_until(lambda: cluster.jobs() == [])


def test_an_allocation_that_has_ended_is_forgotten_with_its_jobs(cluster: Cluster, tmp_path: Path) -> None:
    left = Left(tmp_path, configured(tmp_path, cluster), "node")
    cluster.run("scancel", *cluster.jobs())
    wait_until(lambda: cluster.jobs() == [])
    shown = left.cli("jobs")
    assert (shown.stdout, shown.returncode) == (b"", 0), shown.stderr
    assert left.records() == []
    assert cluster.jobs() == []
