"""The clouds of the tests as places of a configuration file, so that other processes can use them too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.rigs import daytona_rig, modal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.rigs.daytona_server import Daytona


@dataclass(frozen=True)
class Cloud:
    """One of them: the profile ``box`` of a configuration file leads there."""

    options: dict[str, Any]
    alive: Callable[[], list[str]]
    """What somebody would pay for."""
    end: Callable[[str], object]
    """End one of those, as the vendor might."""

    def configure(self, folder: Path) -> Path:
        """Write the file."""
        config = folder / "hermes.toml"
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.options.items()]
        config.write_text("\n".join(["[backends.box]", *lines]))
        return config


def modal_cloud() -> Generator[Cloud]:
    """Modal's, with nothing alive at the start and at the end."""
    server = modal.server()
    server.call("heal")

    def alive() -> list[str]:
        return [str(sandbox["id"]) for sandbox in server.call("alive")]

    def end(name: str) -> None:
        server.call("finish", name, "TERMINATED", 137)

    for each in alive():
        end(each)
    server.call("forget_problems")
    yield Cloud({"type": "modal"}, alive, end)
    for each in alive():
        end(each)
    assert server.call("problems") == []


def daytona_cloud() -> Generator[Cloud]:
    """Daytona's, likewise."""
    for service in daytona_rig.checked():
        options = {"type": "daytona", "image": "python:3.11", "api_url": service.api_url}
        key = f"env:{daytona_rig.VARIABLE}"

        def alive(service: Daytona = service) -> list[str]:
            return list(service.sandboxes)

        def end(name: str, service: Daytona = service) -> None:
            service.do(service.sandboxes[name].destroy())

        yield Cloud({**options, "api_key": key}, alive, end)
        service.do(service.clear())
