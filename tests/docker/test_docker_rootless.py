"""An engine that an ordinary user runs keeps the same promises, and says which limits it cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import HermesError
from hermes_exec.testing.place import count_living, marker
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.docker_engine import DEBIAN
from tests.rigs.docker_rootless import rootless

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.docker_rootless import Rootless


@pytest.fixture(scope="module")
def unprivileged() -> Generator[Rootless]:
    yield from rootless()


def test_sessions_files_and_ends_are_as_in_any_container(run: Any, unprivileged: Rootless) -> None:
    async def work() -> None:
        backend = DockerBackend(unprivileged.profile(DEBIAN))
        async with hermes_exec.open(backend, audit=False) as terminal:
            await terminal.run("cd /usr; f() { echo f $1; }")
            result = await terminal.run("f 1; pwd; echo err >&2; (exit 3)")
            assert (result.stdout, result.stderr, result.exit_code) == (b"f 1\n/usr\n", b"err\n", 3)
            await terminal.write("/var/tmp/file", bytes(range(256)) * 4000)
            assert await terminal.read("/var/tmp/file") == bytes(range(256)) * 4000
            mark = marker()
            late = await terminal.run(f"setsid sleep {mark} & sleep {mark}", timeout=0.5, grace_s=0.1)
            assert late.timed_out
            assert await count_living(terminal, mark) == 0

    run(work())
    unprivileged.wait_until_none()


def test_a_limit_that_it_cannot_hold_is_refused(run: Any, unprivileged: Rootless) -> None:
    async def work() -> None:
        with pytest.raises(HermesError, match="memory") as caught:
            await DockerBackend(unprivileged.profile(DEBIAN, memory="64 MiB")).open()
        assert "rootless" in caught.value.remedy

    run(work())
    assert unprivileged.containers() == []
