"""What a profile asks for arrives at the service, and holds in the sandbox where the rig can show it."""

from __future__ import annotations

import asyncio
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import hermes_exec
from hermes_exec_backends.daytona import DaytonaBackend
from hermes_exec_backends.daytona.service import VARIABLES, Account, make
from tests.rigs import daytona_rig
from tests.rigs.daytona_rig import only
from tests.rigs.daytona_server import KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"cpu": 2, "memory": "4 GiB", "disk": "8 GiB"}, {"cpu": 2, "memory": 4, "disk": 8}),
        ({"memory": "1500 MiB"}, {"memory": 2}),
        ({"gpu": "H100"}, {"gpu": 1, "gpuType": ["H100"]}),
        ({"gpu": "h200:4"}, {"gpu": 4, "gpuType": ["H200"]}),
        ({"gpu": "H100,H200"}, {"gpu": 1, "gpuType": ["H100", "H200"]}),
        ({"gpu": "2"}, {"gpu": 2}),
        ({"region": "eu"}, {"target": "eu"}),
        ({"user": "somebody"}, {"user": "somebody"}),
        ({"allow": ("10.0.0.0/8", "192.168.1.0/24")}, {"networkAllowList": "10.0.0.0/8,192.168.1.0/24"}),
        ({"auto_stop_min": 0}, {"autoStopInterval": 0}),
        ({"auto_archive_min": 7, "auto_delete_min": 9}, {"autoArchiveInterval": 7, "autoDeleteInterval": 9}),
        ({"lease_s": 1801.0}, {"autoStopInterval": 31, "autoArchiveInterval": 31, "autoDeleteInterval": 0}),
    ],
)
def test_an_option_arrives(
    run: Any, daytona: Daytona, opened: Opened, options: dict[str, Any], wanted: dict[str, Any]
) -> None:
    async def work() -> None:
        async with opened(**options):
            asked = only(daytona).wanted
            assert {name: asked.get(name) for name in wanted} == wanted

    run(work())


def test_tags_of_the_profile_stand_beside_ours(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened(tags={"team": "blue", "hermes_exec.lease_s": "forged"}):
            labels = only(daytona).labels
            assert labels["team"] == "blue"
            assert labels["hermes_exec.lease_s"] == "900"

    run(work())


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"image": "debian:12"}, ["FROM debian:12"]),
        (
            {"image": "debian:12", "packages": ("git", "jq")},
            ["FROM debian:12", "RUN apt-get update && apt-get install -y --no-install-recommends git jq"],
        ),
        ({"requirements": ("numpy==2.1",)}, ["FROM python:3.11", "RUN python -m pip install numpy==2.1"]),
    ],
)
def test_an_image_is_built_as_it_is_declared(
    run: Any, daytona: Daytona, opened: Opened, options: dict[str, Any], lines: list[str]
) -> None:
    async def work() -> None:
        async with opened(**options):
            built = daytona.builds[-1].splitlines()
            for line in lines:
                assert any(each.startswith(line) for each in built), built

    run(work())


def test_a_dockerfile_is_built(run: Any, daytona: Daytona, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN echo mine\n")

    async def work() -> None:
        async with opened(dockerfile=tmp_path / "Dockerfile"):
            assert daytona.builds[-1] == "FROM debian:12\nRUN echo mine\n"

    run(work())


def test_without_an_image_it_is_the_vendors_own_snapshot(run: Any, daytona: Daytona) -> None:
    profile = daytona_rig.profile(daytona).model_copy(update={"image": None})

    async def work() -> None:
        async with hermes_exec.open(DaytonaBackend(profile), audit=False):
            assert not only(daytona).wanted.get("buildInfo")
            assert not only(daytona).wanted.get("snapshot")

    run(work())


def test_a_snapshot_is_opened_again_by_its_target(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("echo then > /srv/file")
            target = await terminal.snapshot("base")
            assert target == "daytona:snapshot:base"
            assert (await terminal.run("echo now > /srv/file; cat /srv/file")).stdout == b"now\n"
        async with opened(snapshot="base") as terminal:
            assert (await terminal.run("cat /srv/file")).stdout == b"then\n"

    run(work())


def test_a_volume_is_shared(run: Any, daytona: Daytona, opened: Opened) -> None:
    daytona.do(daytona.new_volume("data"))

    async def work() -> None:
        async with opened(volumes={"/data": "data"}) as terminal:
            await terminal.run("echo kept > /data/file", check=True)
        async with opened(volumes={"/mnt": "data"}) as terminal:
            assert (await terminal.run("cat /mnt/file")).stdout == b"kept\n"

    run(work())


def test_a_port_has_an_address_at_the_vendors_for_who_has_the_token(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    script = (
        "import http.server as h; s = h.HTTPServer(('', 8123), h.BaseHTTPRequestHandler);"
        "print(1, flush=True); s.serve_forever()"
    )

    async def work() -> None:
        made = backend()
        async with (
            hermes_exec.open(made, audit=False) as terminal,
            terminal.stream(["python3", "-c", script]) as stream,
        ):
            assert (await anext(stream)).data == b"1\n"
            link = await made.preview(8123)
            assert link.token not in repr(link)
            granted = await asyncio.to_thread(status, link.url, link.token)
            assert granted == 501  # the server's own, which does nothing
            assert await asyncio.to_thread(status, link.url, "guessed") == 401

    run(work())


def status(url: str, token: str) -> int:
    """What is answered there."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"x-daytona-preview-token": token})) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(("network", "reached"), [("open", True), ("blocked", False)])
def test_the_network_is_what_the_profile_says(
    run: Any, daytona: Daytona, opened: Opened, network: str, reached: bool
) -> None:
    port = urlsplit(daytona.url).port

    async def work() -> None:
        async with opened(network=network) as terminal:
            tried = await terminal.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"])
            assert (tried.exit_code == 0) is reached

    run(work())


def test_the_key_and_the_rest_never_come_from_a_file_of_the_folder(
    run: Any, daytona: Daytona, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for file in (".env", ".env.local"):
        (tmp_path / file).write_text("".join(f"{name}=planted\n" for name in VARIABLES))
    monkeypatch.chdir(tmp_path)
    environment = dict(os.environ)

    async def work() -> None:
        client = make(Account(KEY, daytona.api_url, None, None))
        try:
            sandbox = await client.create(timeout=30)
            assert only(daytona).wanted.get("target") is None
            assert vars(client)["_organization_id"] in {None, ""}
            await sandbox.delete(timeout=30)
        finally:
            await client.close()

    run(work())
    assert dict(os.environ) == environment


def test_a_key_in_a_file_of_the_folder_is_no_key(
    run: Any, daytona: Daytona, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Callable[..., DaytonaBackend]
) -> None:
    made = backend()
    monkeypatch.delenv("HX_TEST_DAYTONA_KEY")
    (tmp_path / ".env").write_text(f"DAYTONA_API_KEY={KEY}\nHX_TEST_DAYTONA_KEY={KEY}\n")
    monkeypatch.chdir(tmp_path)
    before = len(daytona.calls)

    async def work() -> None:
        with pytest.raises(hermes_exec.HermesError, match="no key"):
            await made.open()

    run(work())
    assert len(daytona.calls) == before


def test_what_an_account_shows_of_itself_has_no_key() -> None:
    assert "dtn_" not in repr(Account(KEY, "https://x", None, None))
