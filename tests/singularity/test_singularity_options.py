"""What a profile asks for holds in its container."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.wrapper import PreparedBackend
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend, doctor
from hermes_exec_backends.singularity.options import start_options

if TYPE_CHECKING:
    from hermes_exec.result import Result


def run(image: Path, command: str, carrier: Any = None, **options: Any) -> Result:
    """Open a container, run one command in it and close it."""

    async def work() -> Result:
        backend = SingularityBackend(SingularityProfile.model_validate({"image": str(image), **options}))
        async with hermes_exec.open(backend, audit=False, carrier=carrier) as terminal:
            return await terminal.run(command)

    return asyncio.run(work())


def test_a_contained_place_sees_no_files_and_variables_of_the_one_outside(
    busybox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_OUTSIDE", "seen")  # one that the local place passes on
    result = run(busybox, f'echo "[$LC_OUTSIDE]"; ls {tmp_path} 2>/dev/null; ls ~ /tmp')
    assert result.stdout == b"[]\n/root:\n\n/tmp:\n" if Path.home() == Path("/root") else b"[]\n"


@pytest.mark.parametrize("warm", [True, False])
def test_a_relative_image_starts_at_this_folder(busybox: Path, monkeypatch: pytest.MonkeyPatch, warm: bool) -> None:
    monkeypatch.chdir(busybox.parent)
    assert run(Path(busybox.name), "echo hi", warm=warm).stdout == b"hi\n"
    with pytest.raises(PlaceUnavailable, match=r"could not open image .*docker://python"):
        run(Path("python:3.11"), "true", warm=warm)


def test_variables_of_the_place_outside_can_be_let_in(busybox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_OUTSIDE", "seen")
    assert run(busybox, "echo $LC_OUTSIDE", clean_env=False).stdout == b"seen\n"


@pytest.mark.parametrize("writable", [False, True])
def test_a_bind_is_read_only_unless_asked_otherwise(busybox: Path, tmp_path: Path, writable: bool) -> None:
    folder = tmp_path / "a:b, c"
    folder.mkdir()
    (folder / "in").write_text("hello")
    bind = {"source": str(folder), "target": "/data", "writable": writable}
    result = run(busybox, "cat /data/in; echo x >/data/out", binds=[bind])
    assert result.stdout == b"hello"
    assert (folder / "out").exists() is writable


def test_an_overlay_keeps_what_was_written(busybox: Path, tmp_path: Path) -> None:
    for name in ("upper", "work"):
        (tmp_path / "overlay" / name).mkdir(parents=True)
    run(busybox, "echo kept >/etc/made", overlay=[str(tmp_path / "overlay")])
    assert run(busybox, "cat /etc/made", overlay=[str(tmp_path / "overlay")]).stdout == b"kept\n"


def test_what_is_written_to_the_root_is_gone_at_the_end(busybox: Path) -> None:
    assert run(busybox, "echo x >/etc/made && cat /etc/made").stdout == b"x\n"
    assert run(busybox, "cat /etc/made").exit_code == 1


def test_a_root_that_may_not_be_written_to_is_not(busybox: Path) -> None:
    assert run(busybox, "echo x >/etc/made", writable_tmpfs=False).exit_code != 0
    assert not (busybox / "etc" / "made").exists()


def test_without_a_network_there_is_only_the_loopback(busybox: Path) -> None:
    result = run(busybox, "tail -n +3 /proc/net/dev | cut -d: -f1", network="none")
    assert result.stdout.split() == [b"lo"]


@pytest.mark.parametrize(("options", "seen"), [({}, False), ({"contain": False}, False), ({"home": True}, True)])
def test_the_home_folder_outside_is_seen_only_when_asked_for(
    busybox: Path, options: dict[str, bool], seen: bool
) -> None:
    with tempfile.NamedTemporaryFile(prefix=".hx-test-", dir=Path.home()) as file:
        result = run(busybox, "ls -A ~", **options)
    assert result.exit_code == 0
    assert (Path(file.name).name in result.stdout_text) is seen


def test_system_calls_are_filtered_when_asked_for(busybox: Path, tmp_path: Path) -> None:
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "args": []}
    filters = tmp_path / "no-folders.json"
    filters.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    command = "grep Seccomp: /proc/self/status; mkdir /tmp/x || echo refused"
    assert run(busybox, command).stdout.split() == [b"Seccomp:", b"0"]
    result = run(busybox, command, security=[f"seccomp:{filters}"])
    assert result.stdout.split() == [b"Seccomp:", b"2", b"refused"]


def test_the_runtime_says_nothing_into_a_commands_output(busybox: Path, tmp_path: Path) -> None:
    async def work() -> Result:
        # It comments on a variable of that old name, unless it is told to be silent.
        outer = PreparedBackend(LocalBackend(), env={"SINGULARITY_BIND": str(tmp_path), "APPTAINER_MESSAGELEVEL": "1"})
        backend = SingularityBackend(SingularityProfile(image=str(busybox)), outer)
        async with hermes_exec.open(backend, audit=False) as terminal:
            return await terminal.run("true")

    result = asyncio.run(work())
    assert (result.stdout, result.stderr) == (b"", b"")


@pytest.mark.parametrize(
    ("env", "seen"), [({}, b"2,3"), ({"CUDA_VISIBLE_DEVICES": "2"}, b"2")], ids=["of the scheduler", "of the profile"]
)
def test_which_gpus_are_ours_is_known_inside(busybox: Path, env: dict[str, str], seen: bytes) -> None:
    async def work() -> Result:
        outer = PreparedBackend(LocalBackend(), env={"CUDA_VISIBLE_DEVICES": "2,3"})
        backend = SingularityBackend(SingularityProfile(image=str(busybox)), outer)
        async with hermes_exec.open(backend, audit=False, env=env) as terminal:
            return await terminal.run("echo $CUDA_VISIBLE_DEVICES")

    assert asyncio.run(work()).stdout.split() == [seen]


@pytest.mark.parametrize("option", ["nv", "rocm"])
def test_gpus_are_asked_of_the_runtime_by_its_option(option: str) -> None:
    profile = SingularityProfile.model_validate({"image": "x.sif", option: True})
    assert f"--{option}" in start_options(profile)
    assert f"--{option}" not in start_options(SingularityProfile(image="x.sif"))


@pytest.mark.parametrize(
    ("option", "files"), [("nv", ("/dev/nvidiactl", "/dev/dxg")), ("rocm", ("/dev/kfd", "/dev/dxg"))]
)
def test_gpus_without_their_driver_are_refused_by_name(busybox: Path, option: str, files: tuple[str, ...]) -> None:
    if any(Path(file).exists() for file in files):
        pytest.skip(f"this machine has what {option} needs")
    with pytest.raises(PlaceUnavailable, match=f"{option}: no driver of such GPUs is loaded") as caught:
        run(busybox, "true", **{option: True})
    assert "a node that has GPUs" in caught.value.remedy


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd can enforce them here")
def test_limits_that_nobody_can_enforce_are_refused_by_name(busybox: Path) -> None:
    with pytest.raises(PlaceUnavailable, match=r"its limits \(memory\) cannot be enforced") as caught:
        run(busybox, "true", memory=64 << 20)
    assert "Slurm" in caught.value.remedy


@pytest.mark.parametrize("carrier", ["guest", "plain"])
def test_an_instance_is_not_needed(tree: Path, carrier: str) -> None:
    result = run(tree, "pwd", carrier, warm=False)
    assert result.exit_code == 0


def test_an_image_file_works_as_a_tree_does(sif: Path) -> None:
    result = run(sif, "echo x >/tmp/x; cat /tmp/x; echo $SINGULARITY_NAME")
    assert result.stdout.decode() == f"x\n{sif.name}\n"


@pytest.mark.parametrize(
    ("file", "value", "remedy"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces="),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "profile apptainer /usr/libexec/apptainer/bin/starter"),
    ],
)
def test_doctor_tells_what_keeps_a_user_from_namespaces_and_how_they_are_allowed(
    tmp_path: Path, file: str, value: str, remedy: str
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(f"{value}\n")
    (check,) = doctor.namespaces(tmp_path, "apptainer")
    assert (check.name, check.status) == ("namespaces", "warning")
    assert remedy in check.remedy


def test_doctor_says_nothing_of_namespaces_where_everybody_may_make_them(tmp_path: Path) -> None:
    assert doctor.namespaces(tmp_path, "apptainer") == []


@pytest.mark.parametrize("uid", [0, 1234])
@pytest.mark.parametrize(
    ("controllers", "systemd", "status", "detail"),
    [
        ("cpuset cpu io memory pids", True, "ok", "cpus, memory, pids by cgroup v2, through systemd"),
        ("memory pids", True, "warning", "nothing enforces cpus of a container"),
        ("cpu memory pids", False, "warning", "nothing enforces cpus, memory, pids of a container"),
        (None, True, "warning", "nothing enforces cpus, memory, pids of a container"),
    ],
)
def test_doctor_says_ok_of_limits_only_if_this_user_was_given_each_controller(
    tmp_path: Path, uid: int, controllers: str | None, systemd: bool, status: str, detail: str
) -> None:
    own = tmp_path / "sys/fs/cgroup"
    if uid:
        own.mkdir(parents=True)
        (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")  # those of root
        own /= f"user.slice/user-{uid}.slice/user@{uid}.service"
    if controllers is not None:
        own.mkdir(parents=True, exist_ok=True)
        (own / "cgroup.controllers").write_text(f"{controllers}\n")
    if systemd:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    check = doctor.check_limits(tmp_path, uid)
    assert (check.name, check.status, check.detail) == ("limits", status, detail)
