"""How GPUs are asked for in the engine's own words (the fields of its API's ``DeviceRequest``); needs none."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_exec_backends.docker.options import arguments
from hermes_exec_backends.profiles import DockerProfile

ASKED: dict[str, tuple[str | int, dict[str, Any]]] = {
    "number": (2, {"Count": 2}),
    "all": ("all", {"Count": -1}),
    "ids": ("0,GPU-abc", {"DeviceIDs": ["0", "GPU-abc"]}),
}


@pytest.mark.parametrize(("gpus", "wanted"), ASKED.values(), ids=ASKED)
def test_gpus_are_device_requests(gpus: str | int, wanted: dict[str, Any]) -> None:
    _, host = arguments(DockerProfile.model_validate({"image": "x", "gpus": gpus}), [])
    (request,) = host["device_requests"]
    assert request["Capabilities"] == [["gpu"]]
    assert {key: request[key] for key in wanted} == wanted


def test_without_gpus_no_device_is_asked_for() -> None:
    _, host = arguments(DockerProfile.model_validate({"image": "x"}), [])
    assert "device_requests" not in host
