"""What a profile asks for is what holds in the container; what the engine cannot enforce is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import ConfigError, PlaceUnavailable, Unsupported
from hermes_exec.testing.place import wait_until
from tests.rigs.docker_engine import BUSYBOX, DEBIAN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.conftest import Opened
    from tests.rigs.docker_engine import Engine


async def shown(opened: Opened, command: str, **options: Any) -> str:
    """What a command prints in a container with these options."""
    async with opened(**options) as terminal:
        return (await terminal.run(["sh", "-c", command])).stdout_text


@pytest.mark.parametrize(
    ("options", "command", "wanted"),
    [
        ({"user": "1000"}, "id -u; echo $HOME", "1000\n/home/sandbox\n"),
        ({"user": "sandbox"}, "id -un", "sandbox\n"),
        ({"hostname": "here"}, "hostname", "here\n"),
        ({}, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n"),
        ({"shm": 4 << 20}, "df -k /dev/shm | tail -n 1 | awk '{print $2}'", "4096\n"),
        ({"ulimits": {"nofile": 321}}, "ulimit -n", "321\n"),
        ({"tmpfs": {"/scratch": 1 << 20}}, "df -k /scratch | tail -n 1 | awk '{print $2}'", "1024\n"),
        ({"read_only": True}, "touch /file 2>/dev/null || echo refused", "refused\n"),
        ({}, "cat /proc/1/comm", "sh\n"),
        ({"init": True}, "cat /proc/1/comm", "docker-init\n"),
        ({"cap_drop": ["ALL"]}, "grep CapBnd /proc/self/status | cut -f2", "0000000000000000\n"),
        (
            {"cap_drop": ["ALL"], "cap_add": ["CHOWN"]},
            "grep CapBnd /proc/self/status | cut -f2",
            "0000000000000001\n",
        ),
        ({"security_opt": ["no-new-privileges"]}, "grep NoNewPrivs /proc/self/status | cut -f2", "1\n"),
    ],
)
def test_an_option_holds_in_the_container(
    run: Any, opened: Opened, options: dict[str, Any], command: str, wanted: str
) -> None:
    assert run(shown(opened, command, **options)) == wanted


def test_the_hosts_network_is_there_when_asked_for(run: Any, opened: Opened) -> None:
    with open("/proc/net/dev", encoding="ascii") as file:
        ours = sorted(line.split(":")[0].strip() for line in file.readlines()[2:])
    seen = run(shown(opened, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '", network="host"))
    assert sorted(seen.split()) == ours


def test_a_bind_is_read_only_unless_writing_is_asked_for(run: Any, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    binds = [f"{tmp_path}:/ro", f"{tmp_path}:/rw:rw"]
    command = "cat /ro/file; touch /ro/new 2>/dev/null || echo ' refused'; echo made > /rw/made"
    assert run(shown(opened, command, binds=_bound(binds))) == "content refused\n"
    assert (tmp_path / "made").read_text() == "made\n"


def test_a_bind_of_a_missing_folder_is_refused_and_made_by_nobody(
    run: Any, opened: Opened, dock: Engine, tmp_path: Path
) -> None:
    with pytest.raises(PlaceUnavailable, match=r"missing"):
        run(shown(opened, "true", binds=_bound([f"{tmp_path}/missing:/x"])))
    assert not (tmp_path / "missing").exists()
    assert dock.containers() == []


def test_a_bind_of_a_relative_folder_is_refused(run: Any, opened: Opened) -> None:
    with pytest.raises(ConfigError, match="not an absolute path"):
        run(shown(opened, "true", binds=_bound(["name:/x"])))


def test_a_named_volume_outlives_the_container(run: Any, opened: Opened, dock: Engine) -> None:
    try:
        run(shown(opened, "echo kept > /data/file", volumes={"/data": "hermes-exec-test"}))
        assert run(shown(opened, "cat /data/file", volumes={"/data": "hermes-exec-test"})) == "kept\n"
    finally:
        dock.client.remove_volume("hermes-exec-test")


def test_a_memory_limit_ends_what_exceeds_it(run: Any, opened: Opened) -> None:
    async def exceed() -> None:
        async with opened(memory=96 << 20) as terminal:
            result = await terminal.run(["python3", "-c", "x = bytearray(300_000_000)"])
            assert result.shell_code == 137
            assert (await terminal.run("echo on")).stdout == b"on\n"

    run(exceed())


def test_a_limit_of_processes_holds(run: Any, opened: Opened) -> None:
    async def fork() -> None:
        async with opened(BUSYBOX, pids=30) as terminal:
            many = "i=0; while [ $i -lt 60 ]; do sleep 3 & i=$((i+1)); done 2>&1; echo done"
            result = await terminal.run(["sh", "-c", many])
            assert b"fork" in result.stdout

    run(fork())


def test_a_share_of_the_cpus_is_given_to_the_engine(run: Any, opened: Opened, dock: Engine) -> None:
    async def look() -> int:
        async with opened(BUSYBOX, cpus=0.5):
            return int(dock.inspect(dock.containers()[0]["Id"])["HostConfig"]["NanoCpus"])

    assert run(look()) == 500_000_000


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_orphans_are_reaped(run: Any, opened: Opened, image: str) -> None:
    async def orphan() -> None:
        async with opened(image, carrier="plain") as terminal:
            for _ in range(3):
                await terminal.run(["sh", "-c", "(sleep 0.05 >/dev/null 2>&1 &)"])
            look = 'grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null'

            async def none() -> bool:
                return (await terminal.run(["sh", "-c", look])).stdout == b""

            await wait_until(none)

    run(orphan())


def test_labels_are_there_beside_ours(run: Any, opened: Opened, dock: Engine) -> None:
    async def look() -> dict[str, str]:
        async with opened(BUSYBOX, labels={"team": "ours"}, lease_s=77):
            labels: dict[str, str] = dock.containers()[0]["Labels"]
            return labels

    labels = run(look())
    assert (labels["team"], labels["hermes_exec.lease_s"]) == ("ours", "77")
    assert "pid " in labels["hermes_exec.owner"]


def test_a_seccomp_profile_is_read_from_its_file_and_enforced(run: Any, opened: Opened, tmp_path: Path) -> None:
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 93}
    file = tmp_path / "seccomp.json"
    file.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    code = "python3 -c 'import os\ntry: os.mkdir(\"/tmp/x\")\nexcept OSError as error: print(error.errno)'"

    async def try_it() -> str:
        async with opened(security_opt=[f"seccomp={file}"], carrier="plain") as terminal:
            return (await terminal.run(["sh", "-c", code])).stdout_text

    assert run(try_it()) == "93\n"


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), ("{", "is not JSON")])
def test_a_seccomp_profile_that_cannot_be_used_is_refused(
    run: Any, opened: Opened, dock: Engine, tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "seccomp.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=why):
        run(shown(opened, "true", security_opt=[f"seccomp={file}"]))
    assert dock.containers() == []


@pytest.mark.parametrize(("option", "module"), [("apparmor=strict", "apparmor"), ("label=type:x", "selinux")])
def test_a_module_that_the_host_lacks_is_refused_and_not_ignored(
    run: Any, opened: Opened, dock: Engine, option: str, module: str
) -> None:
    if any(module in str(each) for each in dock.client.info()["SecurityOptions"]):
        pytest.skip(f"this engine's host has {module}")
    with pytest.raises(Unsupported, match=f"no {module}, so it would be ignored"):
        run(shown(opened, "true", security_opt=[option]))
    assert dock.containers() == []


def test_what_the_engine_refuses_is_told_and_leaves_nothing(run: Any, opened: Opened, dock: Engine) -> None:
    with pytest.raises(PlaceUnavailable, match="docker: container"):
        run(shown(opened, "true", runtime="no-such-runtime"))
    assert dock.containers() == []


def _bound(texts: list[str]) -> list[dict[str, Any]]:
    parts = [text.split(":") for text in texts]
    return [{"source": part[0], "target": part[1], "writable": part[2:] == ["rw"]} for part in parts]
