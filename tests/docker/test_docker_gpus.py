"""GPUs: what an engine that has some is asked for, and what is said by one that has none.

Docker gives a container GPUs by a hook of NVIDIA's toolkit, which it looks for when it starts. A hook of ours in its
place makes it an engine with GPUs, as far as the engine goes: it takes the request, and tells the hook which ones
are meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable, Unsupported
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.docker_engine import BUSYBOX, Dockerd, own_engine
from tests.rigs.podman_engine import podman

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.docker_engine import Engine

_HOOK = "#!/bin/sh\nexec cat >/dev/null\n"


@pytest.fixture(scope="module")
def gpu_engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Dockerd]:
    own_engine()  # or the reason why there is none
    programs = tmp_path_factory.mktemp("programs")
    (programs / "nvidia-container-runtime-hook").write_text(_HOOK)
    (programs / "nvidia-container-runtime-hook").chmod(0o755)
    made = Dockerd(programs=programs)
    try:
        yield made
    finally:
        made.remove()


async def devices(engine: Engine, **options: Any) -> str:
    """Which GPUs a container with these options is given, in the words of the toolkit; empty for none."""
    look = "tr '\\0' '\\n' </proc/1/environ | sed -n s/^NVIDIA_VISIBLE_DEVICES=//p"
    async with hermes_exec.open(DockerBackend(engine.profile(BUSYBOX, **options)), audit=False) as terminal:
        return (await terminal.run(["sh", "-c", look], check=True)).stdout_text.strip()


@pytest.mark.parametrize(
    ("gpus", "given"),
    [("all", "all"), (2, "0,1"), ("3,5", "3,5"), ("GPU-6f2a", "GPU-6f2a"), (0, "")],
)
def test_an_engine_with_gpus_is_asked_for_those_of_the_profile(
    run: Any, gpu_engine: Dockerd, gpus: object, given: str
) -> None:
    assert run(devices(gpu_engine, gpus=gpus)) == given


def test_capabilities_tell_of_gpus_where_some_were_asked_for(run: Any, gpu_engine: Dockerd) -> None:
    async def told(**options: Any) -> bool:
        async with hermes_exec.open(DockerBackend(gpu_engine.profile(BUSYBOX, **options)), audit=False) as terminal:
            return "gpu" in terminal.capabilities.features

    assert run(told(gpus=1))
    assert not run(told())
    assert not run(told(gpus=0))


def test_an_engine_without_their_driver_is_named_with_what_to_try(run: Any, dock: Engine) -> None:
    if "nvidia" in str(dock.client.info().get("Runtimes")):
        pytest.skip("this engine has GPUs")
    with pytest.raises(PlaceUnavailable, match="docker: gpus: this engine has no driver for them") as caught:
        run(devices(dock, gpus="all"))
    assert "NVIDIA Container Toolkit" in caught.value.remedy
    assert dock.containers() == []


def test_an_engine_that_would_ignore_the_request_is_refused(run: Any) -> None:
    engine = podman()
    with pytest.raises(Unsupported, match="gpus: this engine takes the request and ignores it"):
        run(devices(engine, gpus="all"))
    assert engine.containers() == []
