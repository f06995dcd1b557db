"""The whole way of a cluster: a login node over SSH, an allocation of Slurm, a container of Apptainer in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.cli.app import start
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.testing.place import link
from tests.rigs import apptainer, slurm
from tests.rigs.bounded import wait_until
from tests.rigs.killed import Left
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

CONFIG = """
[backends.login]
{login}
env = {{ SLURM_CONF = "{conf}" }}
[backends.gpu_node]
type = "slurm"
via = "login"
memory = "512 MiB"
gpus = "tiny:1"
time = "00:20:00"
[backends.torch]
type = "singularity"
via = "gpu_node"
image = "{image}"
[backends.short]
type = "singularity"
via = "gpu_node"
image = "{image}"
lease_s = 4
[backends.nowhere]
type = "slurm"
via = "login"
partition = "nowhere"
[backends.lost]
type = "singularity"
via = "nowhere"
image = "{image}"
"""


class Site:
    """What these tests stand on."""

    def __init__(self, sshd: Sshd, cluster: slurm.Cluster, image: Path, file: Path) -> None:
        self.sshd = sshd
        self.cluster = cluster
        # The nodes know the users of this machine alone, and clusters as small as this one are run by root.
        profile = sshd.profile(user="root").model_dump(mode="json", exclude_defaults=True)
        lines = [f"{name} = {json.dumps(value)}" for name, value in {"type": "ssh", **profile}.items()]
        file.write_text(CONFIG.format(login="\n".join(lines), conf=cluster.conf, image=image))
        self.file = file


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    folder = tmp_path_factory.mktemp("site")
    image = apptainer.tree(folder)
    with slurm.cluster(2) as cluster, Sshd() as sshd:
        yield Site(sshd, cluster, image, folder / "hermes.toml")


@pytest.fixture(autouse=True)
def _configured(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(site.file))


def run(work: Any) -> Any:
    return asyncio.run(work())


def test_commands_run_in_the_container_on_the_node_behind_the_login(site: Site) -> None:
    async def work() -> bytes:
        async with hermes_exec.open("torch", audit=False) as terminal:
            assert len(site.cluster.jobs()) == 1
            return (await terminal.run("echo $SINGULARITY_NAME $CUDA_VISIBLE_DEVICES; x=1; id -u >/dev/null")).stdout

    assert run(work) == b"debian 0\n"
    assert site.cluster.jobs() == []


def test_files_stream_through_and_are_stored_nowhere_between(site: Site, tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(os.urandom(8 << 20))

    async def work() -> bytes:
        async with hermes_exec.open("torch", audit=False) as terminal:
            await terminal.upload(source, "/data")  # only in the memory of the container
            await terminal.download("/data", tmp_path / "back")
            return (await terminal.run("sha256sum </data")).stdout.split()[0]

    assert run(work).decode() == hashlib.sha256(source.read_bytes()).hexdigest()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_connection_that_breaks_is_mended_through_the_whole_chain(site: Site) -> None:
    async def work() -> tuple[bytes, bytes]:
        async with hermes_exec.open("torch", audit=False) as terminal:
            await terminal.run("x=kept; echo once >>/tmp/runs")
            running = asyncio.ensure_future(terminal.run("echo once >>/tmp/runs; sleep 2; echo $x"))
            await asyncio.sleep(0.5)
            link(terminal).break_connection()
            return (await running).stdout, (await terminal.run("wc -l </tmp/runs")).stdout

    assert run(work) == (b"kept\n", b"2\n")


def test_a_login_node_that_goes_and_comes_back_loses_nothing(site: Site) -> None:
    async def work() -> bytes:
        async with hermes_exec.open("torch", audit=False) as terminal:
            await terminal.run("x=kept")
            running = asyncio.ensure_future(terminal.run("sleep 3; echo $x"))
            await asyncio.sleep(0.5)
            site.sshd.stop()
            await asyncio.sleep(1)
            site.sshd.start()
            return (await running).stdout

    assert run(work) == b"kept\n"
    assert site.cluster.jobs() == []


def test_a_broken_link_is_named(site: Site) -> None:
    async def work() -> str:
        with pytest.raises(PlaceUnavailable) as caught:
            await hermes_exec.open("singularity:/no/such.sif+gpu_node", audit=False)
        return caught.value.place

    assert run(work).startswith("singularity:/no/such.sif+slurm+ssh://")
    assert site.cluster.jobs() == []


def test_doctor_names_the_broken_link_of_a_cluster(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["doctor", "lost", "--json"]) == 1
    told = {kind["type"]: kind["checks"] for kind in json.loads(capsys.readouterr().out) if kind["checks"]}
    login, node, container = list(told)[-3:]
    assert [check["status"] for check in told[login]] == ["ok"]
    assert [check["status"] for check in told[node]] == ["missing"]
    assert "invalid partition" in told[node][0]["detail"]
    assert (container, [check["status"] for check in told[container]]) == ("lost", ["warning"])
    assert site.cluster.jobs() == []


def test_a_one_line_target_does_the_same(site: Site) -> None:
    async def work() -> bytes:
        async with hermes_exec.open("slurm+login", audit=False) as terminal:
            return (await terminal.run("echo $SLURM_JOB_PARTITION")).stdout

    assert run(work) == b"main\n"


def test_a_job_of_a_killed_process_is_found_in_the_same_container_of_the_same_allocation(
    site: Site, tmp_path: Path
) -> None:
    left = Left(tmp_path, site.file, "short")
    before = site.cluster.jobs()
    assert len(before) == 1
    left.ends_as_it_should()
    assert site.cluster.jobs() == before
    left.forget()
    wait_until(lambda: not site.cluster.jobs())  # the allocation has ended
