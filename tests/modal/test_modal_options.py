"""What a profile asks for arrives at the vendor, and holds where this machine can make it hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_backends.modal import ModalBackend
from hermes_exec_backends.profiles.modal import ModalProfile

if TYPE_CHECKING:
    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

GPUS = [
    *("T4", "L4", "A10", "A10:4", "L40S", "A100", "A100-40GB", "A100-80GB:8", "RTX-PRO-6000", "H100", "H100!"),
    *("H100:2", "H200", "B200", "B200+:2"),
]


async def created(server: Apart, opened: Opened, **options: Any) -> dict[str, Any]:
    async with opened(**options) as terminal:
        assert (await terminal.run("echo in")).stdout == b"in\n"
        (one,) = server.call("alive")
        return dict(one)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_kind_and_count_of_gpu_is_asked_for(run: Any, server: Apart, opened: Opened, gpu: str) -> None:
    one = run(created(server, opened, gpu=gpu))
    kind, _, count = gpu.partition(":")
    assert one["definition"]["resources"]["gpu_config"] == {"gpu_type": kind.upper(), "count": int(count or 1)}
    assert one["generation"] == 1


def test_a_profile_written_in_short_is_taken(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUGGINGFACE_TOKEN", "hf-secret")
    profile = ModalProfile.model_validate(
        {"type": "modal", "gpu": "A100", "timeout": 3600, "secrets": ["HUGGINGFACE_TOKEN"]}
    )
    backend = ModalBackend.from_profile(profile)

    async def work() -> None:
        await backend.open()
        (one,) = server.call("alive")
        assert one["definition"]["resources"]["gpu_config"]["gpu_type"] == "A100"
        assert one["definition"]["timeout_secs"] == 3600
        await backend.close()

    run(work())


def test_resources_limits_times_and_regions_arrive(run: Any, server: Apart, opened: Opened) -> None:
    options: dict[str, Any] = {
        "cpu": 2.0, "cpu_limit": 4.0, "memory": 1 << 30, "memory_limit": 2 << 30, "timeout": 7200, "idle_timeout": 600,
        "region": ("eu", "us-east"), "tags": {"team": "x"},
    }  # fmt: skip
    one = run(created(server, opened, **options))
    definition = one["definition"]
    resources = {name: value for name, value in definition["resources"].items() if value}
    assert resources == {
        "milli_cpu": 2000,
        "milli_cpu_max": 4000,
        "memory_mb": 1024,
        "memory_mb_max": 2048,
    }
    assert (definition["timeout_secs"], definition["idle_timeout_secs"]) == (7200, 600)
    assert definition["scheduler_placement"]["regions"] == ["eu", "us-east"]
    assert one["tags"]["team"] == "x"
    assert one["tags"]["hermes_exec.lease_s"] == "60"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ["python"]),
        ({"packages": ("git",), "requirements": ("numpy==2.4",)}, ["apt-get install -y git", "numpy==2.4"]),
        ({"image": "ubuntu:24.04"}, ["FROM ubuntu:24.04"]),
    ],
    ids=["slim", "packages", "registry"],
)
def test_an_image_is_described(
    run: Any, server: Apart, opened: Opened, options: dict[str, Any], lines: list[str]
) -> None:
    run(created(server, opened, **options))
    built = "\n".join(server.call("images").values())
    assert all(line in built for line in lines)


def test_a_dockerfile_is_built(run: Any, server: Apart, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN echo from-the-dockerfile\n")
    run(created(server, opened, dockerfile=tmp_path / "Dockerfile"))
    assert "RUN echo from-the-dockerfile" in "\n".join(server.call("images").values())


@pytest.mark.parametrize(("network", "reached"), [("open", b"yes\n"), ("blocked", b"no\n")])
def test_a_network_is_there_or_blocked(run: Any, server: Apart, opened: Opened, network: str, reached: bytes) -> None:
    async def work() -> None:
        outside = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = outside.sockets[0].getsockname()[1]
        async with outside, opened(network=network) as terminal:
            text = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo yes || echo no"
            assert (await terminal.run(text)).stdout == reached

    run(work())


def test_an_allow_list_arrives(run: Any, server: Apart, opened: Opened) -> None:
    access = run(created(server, opened, allow=("10.0.0.0/8",)))["definition"]["network_access"]
    assert access == {"network_access_type": "ALLOWLIST", "allowed_cidrs": ["10.0.0.0/8"]}


def test_secrets_of_the_vendor_are_variables(run: Any, server: Apart, opened: Opened) -> None:
    server.call("secret", "stored-there", TOKEN="its-value")

    async def work() -> None:
        for generation in ("v1", "v2"):
            async with opened(vendor_secrets=("stored-there",), generation=generation) as terminal:
                assert (await terminal.run('echo "$TOKEN"')).stdout == b"its-value\n"

    run(work())


def test_volumes_outlive_their_sandboxes(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened(volumes={"/data": "shared"}) as terminal:
            await terminal.run("echo kept > /data/file")
        async with opened(volumes={"/other": "shared"}) as terminal:
            assert (await terminal.run("cat /other/file")).stdout == b"kept\n"

    run(work())


def test_ports_have_an_address_outside(run: Any, server: Apart) -> None:
    async def work() -> None:
        import hermes_exec

        backend = ModalBackend(ModalProfile(ports=(8765,)))
        async with hermes_exec.open(backend, audit=False) as terminal:
            serve = "s = socket.create_server(('127.0.0.1', 8765)); print(flush=True); s.accept()[0].sendall(b'hi')"
            async with terminal.stream(["python3", "-c", f"import socket; {serve}"]) as stream:
                async for _ in stream:
                    break
                host, port = (await backend.tunnels())[8765]
                reader, writer = await asyncio.open_connection(host, port)
                assert await reader.read(10) == b"hi"
                writer.close()

    run(work())


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_generation_can_be_chosen(run: Any, server: Apart, opened: Opened, generation: str) -> None:
    assert run(created(server, opened, generation=generation))["generation"] == int(generation[1])


def test_no_secret_is_on_a_command_line_or_in_a_tag(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened(env={"PASS": "not-a-secret"}) as terminal:
            await terminal.run("true", env={"TOKEN": "very-secret"})
            (one,) = server.call("alive")
            assert "very-secret" not in str(one)
            assert "as-test" not in str(one)

    run(work())
