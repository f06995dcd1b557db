"""The stack, started by pytest-docker once for all tests of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.stack import Folder, Stack, prepare

if TYPE_CHECKING:
    from pytest_docker.plugin import Services


@pytest.fixture(scope="session")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return prepare(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="session")
def docker_compose_command(stack_folder: Folder) -> str:
    return stack_folder.command


@pytest.fixture(scope="session")
def docker_compose_file(stack_folder: Folder) -> str:
    return str(stack_folder.path / "compose.yaml")


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    return "hermes-lab"


@pytest.fixture(scope="session")
def docker_setup() -> list[str]:
    return ["up --detach"]


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    return ["down --volumes --timeout 5"]


@pytest.fixture(scope="session")
def stack(stack_folder: Folder, docker_services: Services) -> Stack:
    """The whole stack, up and in health."""
    port = docker_services.port_for("hermes-core", 8080)
    made = Stack(stack_folder, f"http://127.0.0.1:{port}")
    made.until("/ready", 200)
    return made
