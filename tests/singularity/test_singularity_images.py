"""Images that are built from what a profile describes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from hermes_exec_backends.singularity.images import definition_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Require


def profile(**fields: Any) -> SingularityProfile:
    return SingularityProfile.model_validate(fields)


def test_requirements_are_installed_on_top_of_an_image() -> None:
    text = definition_of(profile(image="docker://python:3.11", requirements=["numpy==2.1", "a b; 'c'"]))
    assert text.startswith("Bootstrap: docker\nFrom: python:3.11\n")
    assert "%post\n    python3 -m pip install --no-cache-dir numpy==2.1 'a b; '\"'\"'c'\"'\"''" in text


def test_an_image_of_the_place_outside_is_built_upon_as_such() -> None:
    text = definition_of(profile(image="/images/base.sif", requirements=["x"]))
    assert text.startswith("Bootstrap: localimage\nFrom: /images/base.sif\n")


def test_a_definition_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "my.def"
    file.write_text("Bootstrap: docker\nFrom: alpine\n")
    assert definition_of(profile(definition=str(file))) == "Bootstrap: docker\nFrom: alpine\n"


def test_a_dockerfile_is_converted(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:3.11\nENV MODE=fast\nRUN pip install numpy\n")
    text = definition_of(profile(definition=str(file), requirements=["scipy"]))
    assert "Bootstrap: docker" in text
    assert "From: python:3.11" in text
    assert "pip install numpy" in text
    assert "MODE=fast" in text
    assert text.rstrip().endswith("pip install --no-cache-dir scipy")


def test_a_file_that_is_neither_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("hello")
    with pytest.raises(ConfigError, match="neither a definition"):
        definition_of(profile(definition=str(file)))


def test_an_image_is_built_once_and_opened(
    busybox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Require
) -> None:
    require("mksquashfs", "packs image files")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    file = tmp_path / "my.def"
    file.write_text(f"Bootstrap: localimage\nFrom: {busybox}\n%post\n    echo built >/etc/made\n")
    times: list[float] = []

    async def run() -> bytes:
        async with hermes_exec.open(SingularityBackend(profile(definition=str(file))), audit=False) as terminal:
            return (await terminal.run("cat /etc/made")).stdout

    for _ in range(2):
        assert asyncio.run(run()) == b"built\n"
        (image,) = (tmp_path / ".cache/hermes-exec/images").iterdir()
        times.append(image.stat().st_mtime)
    assert times[0] == times[1]


def test_a_build_that_fails_is_told_and_leaves_nothing(
    busybox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    file = tmp_path / "my.def"
    file.write_text(f"Bootstrap: localimage\nFrom: {busybox}\n%post\n    echo so sad >&2; exit 3\n")
    with pytest.raises(PlaceUnavailable, match="could not be built at local"):
        asyncio.run(SingularityBackend(profile(definition=str(file))).open())
    assert list((tmp_path / ".cache/hermes-exec/images").iterdir()) == []
