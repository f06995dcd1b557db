"""Images, and whatever this user's Apptainer runs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.rigs import apptainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked Debian with Python."""
    return apptainer.tree(tmp_path_factory.mktemp("debian"))


@pytest.fixture(scope="session")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked busybox."""
    return apptainer.tree(tmp_path_factory.mktemp("busybox"), "busybox")


@pytest.fixture(scope="session")
def sif(tmp_path_factory: pytest.TempPathFactory, busybox: Path) -> Path:
    """An image file of the small one."""
    return apptainer.image_file(tmp_path_factory.mktemp("sif"), busybox)


@pytest.fixture
def instances() -> Callable[[Path], list[str]]:
    """The names of the running instances of an image."""
    program = apptainer.program()

    def of(image: Path) -> list[str]:
        out = subprocess.run([program, "-s", "instance", "list", "-j"], check=True, capture_output=True).stdout
        return [each["instance"] for each in json.loads(out)["instances"] if each["img"] == str(image)]

    return of
