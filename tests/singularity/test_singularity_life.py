"""When a container begins and ends, and what is said when it does not begin."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.testing.place import link
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from tests.rigs import apptainer
from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def backend(image: Path, **options: object) -> SingularityBackend:
    return SingularityBackend(SingularityProfile.model_validate({"image": str(image), **options}))


@pytest.fixture(autouse=True)
def place_of_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the places of these tests make their folders, and nobody else."""
    folder = tmp_path_factory.mktemp("folders")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_a_container_is_kept_while_open_and_gone_afterwards(
    busybox: Path, instances: Callable[[Path], list[str]], place_of_folders: Path
) -> None:
    async def run() -> int:
        async with hermes_exec.open(backend(busybox), audit=False):
            return len(instances(busybox))

    assert asyncio.run(run()) == 1
    assert instances(busybox) == []
    assert list(place_of_folders.iterdir()) == []


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("home", [True, False])
@pytest.mark.parametrize("outside", ["/dev/null/home", ""])
def test_a_user_without_a_home_folder_has_containers_and_sees_no_other_home(
    tree: Path, monkeypatch: pytest.MonkeyPatch, warm: bool, home: bool, outside: str
) -> None:
    monkeypatch.setenv("HOME", outside)

    async def run() -> bytes:
        place = backend(tree, warm=warm, home=home, contain=home)
        async with hermes_exec.open(place, audit=False, carrier="guest") as terminal:
            return (await terminal.run("pwd >/dev/null && ls -A ~", check=True)).stdout

    assert asyncio.run(run()) == b""


def test_a_container_ends_when_its_orchestrator_was_killed(
    tree: Path, instances: Callable[[Path], list[str]], tmp_path: Path, place_of_folders: Path
) -> None:
    script = """
import asyncio, sys, hermes_exec
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
async def main():
    backend = SingularityBackend(SingularityProfile(image=sys.argv[1], lease_s=1.0))
    terminal = await hermes_exec.open(backend, audit=False, lease_s=1.0, carrier="guest")
    await terminal.run("touch /data/here; sleep 1000")
asyncio.run(main())
"""
    script = script.replace("lease_s=1.0))", f"lease_s=1.0, binds=['{tmp_path}:/data:rw']))")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    orchestrator = subprocess.Popen([sys.executable, "-c", script, str(tree)], env=environment)
    wait_until((tmp_path / "here").exists)
    assert len(instances(tree)) == 1
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.wait()
    wait_until(lambda: instances(tree) == [] and list(place_of_folders.iterdir()) == [])


def test_a_guest_with_a_job_keeps_its_container_until_it_ends(
    tree: Path, instances: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    async def run() -> None:
        place = backend(tree, binds=[f"{tmp_path}:/data:rw"])
        async with hermes_exec.open(place, audit=False, carrier="guest") as terminal:
            wait = "while [ ! -e /data/go ]; do sleep 0.1; done; touch /data/done; pkill -9 -f '<[h]x '"
            await terminal.start(["sh", "-c", wait])

    asyncio.run(run())
    assert len(instances(tree)) == 1
    (tmp_path / "go").touch()
    wait_until((tmp_path / "done").exists)
    wait_until(lambda: instances(tree) == [])


@pytest.mark.parametrize("warm", [True, False])
def test_a_cut_is_mended(tree: Path, warm: bool) -> None:
    async def run() -> bytes:
        async with hermes_exec.open(backend(tree, warm=warm), audit=False, carrier="guest") as terminal:
            await terminal.run("x=kept; echo $x >/tmp/file")
            link(terminal).break_connection()
            return (await terminal.run("echo $x; cat /tmp/file")).stdout

    assert asyncio.run(run()) == b"kept\nkept\n"


def test_an_instance_of_somebody_is_entered_and_left_running(sif: Path, instances: Callable[[Path], list[str]]) -> None:
    program = apptainer.program()
    environment = {**os.environ, "APPTAINER_USERNS": "1"}
    name = f"hx-theirs-{os.urandom(4).hex()}"  # of all that this user runs on this machine
    subprocess.run([program, "-s", "instance", "start", "--containall", str(sif), name], check=True, env=environment)
    try:

        async def run() -> bytes:
            place = SingularityBackend(SingularityProfile(instance=name))
            assert place.target == f"singularity:@{name}"
            async with hermes_exec.open(place, audit=False) as terminal:
                return (await terminal.run("echo $SINGULARITY_INSTANCE")).stdout

        assert asyncio.run(run()) == f"{name}\n".encode()
        assert instances(sif) == [name]
    finally:
        subprocess.run([program, "-s", "instance", "stop", "-F", name], check=True, env=environment)


def test_an_image_that_is_not_there_is_told_with_the_runtimes_words(tmp_path: Path, place_of_folders: Path) -> None:
    apptainer.program()
    with pytest.raises(PlaceUnavailable, match=r"none\.sif does not start at local: .*no such file"):
        asyncio.run(backend(tmp_path / "none.sif").open())
    assert list(place_of_folders.iterdir()) == []


def test_a_missing_program_is_told_with_what_to_try(busybox: Path) -> None:
    with pytest.raises(PlaceUnavailable, match="no no-such-runtime at local") as caught:
        asyncio.run(backend(busybox, program="no-such-runtime").open())
    assert "module load" in caught.value.remedy


def test_an_instance_that_is_not_there_is_told() -> None:
    apptainer.program()
    place = SingularityBackend(SingularityProfile(instance="hx-none"))
    with pytest.raises(PlaceUnavailable, match="'hx-none' cannot be entered"):
        asyncio.run(place.open())


def kill_holder(name: str) -> None:
    subprocess.run(["pkill", "-9", "-f", f"^/bin/sh -c.*{name}"], check=True)


def test_what_lost_its_holder_is_reaped_and_nothing_else(
    busybox: Path, instances: Callable[[Path], list[str]], place_of_folders: Path
) -> None:
    async def run() -> tuple[list[str], list[str], list[str]]:
        lost, held = backend(busybox), backend(busybox)
        await lost.open()
        (name,) = instances(busybox)
        await held.open()
        (kept,) = set(instances(busybox)) - {name}
        kill_holder(name)
        swept = [each.target for each in await SingularityBackend.reap() if each.target.endswith((name, kept))]
        left = instances(busybox)
        await held.close()
        await lost.close()
        return swept, [f"singularity:@{name}"], left if left == [kept] else []

    swept, wanted, left = asyncio.run(run())
    assert swept == wanted
    assert len(left) == 1
    assert list(place_of_folders.iterdir()) == []
