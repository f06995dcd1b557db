"""Images: found or told, built once for each content, from a Dockerfile or from Python requirements."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.docker_engine import BUSYBOX, DEBIAN

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.rigs.docker_engine import Engine


@pytest.fixture(autouse=True)
def _nothing_built_is_left(dock: Engine) -> Generator[None]:
    yield
    for image in dock.client.images("hermes-exec"):
        dock.client.remove_image(image["Id"], force=True)


async def shown(dock: Engine, command: str, image: str = BUSYBOX, **options: Any) -> str:
    async with hermes_exec.open(DockerBackend(dock.profile(image, **options)), audit=False) as terminal:
        return (await terminal.run(["sh", "-c", command])).stdout_text


def built(dock: Engine) -> set[str]:
    """The images that were built by now."""
    return {tag for image in dock.client.images("hermes-exec") for tag in image["RepoTags"]}


@pytest.fixture
def context(tmp_path: Path, dock: Engine) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        f"FROM {dock.image(BUSYBOX)}\nARG word=none\nENV WORD=$word\nCOPY file /file\nWORKDIR /tmp\n"
        'ENTRYPOINT ["false"]\nHEALTHCHECK CMD false\n'
    )
    (folder / "file").write_text("one\n")
    return folder


def test_an_image_that_is_not_there_is_told(run: Any, dock: Engine) -> None:
    profile = dock.profile().model_copy(update={"image": "no-such-image:9"})
    with pytest.raises(PlaceUnavailable, match=r"there is no image no-such-image:9 here.*docker pull"):
        run(DockerBackend(profile).open())


def test_an_image_that_cannot_be_pulled_is_told(run: Any, dock: Engine) -> None:
    profile = dock.profile().model_copy(update={"image": "localhost:1/no-such-image:9", "pull": "missing"})
    with pytest.raises(PlaceUnavailable, match=r"no-such-image:9 is not here and could not.* Try: docker pull"):
        run(DockerBackend(profile).open())


def test_a_dockerfile_is_built_with_its_arguments_and_its_settings_hold(run: Any, dock: Engine, context: Path) -> None:
    said = run(
        shown(dock, "cat /file; echo $WORD; pwd", dockerfile=context / "Dockerfile", build_args={"word": "given"})
    )
    assert said == "one\ngiven\n/tmp\n"


def test_the_same_content_is_built_once_and_a_change_is_built(run: Any, dock: Engine, context: Path) -> None:
    options: dict[str, Any] = {"dockerfile": context / "Dockerfile"}
    run(shown(dock, "true", **options))
    first = built(dock)
    assert len(first) == 1
    (context / "file").touch()  # a time is no content
    run(shown(dock, "true", **options))
    assert built(dock) == first
    (context / "file").write_text("two\n")
    assert run(shown(dock, "cat /file", **options)) == "two\n"
    assert len(built(dock)) == 2


def test_what_is_ignored_by_the_context_changes_nothing(run: Any, dock: Engine, context: Path) -> None:
    (context / ".dockerignore").write_text("# notes\nnotes\n")
    run(shown(dock, "true", dockerfile=context / "Dockerfile"))
    first = built(dock)
    (context / "notes").write_text("new")
    run(shown(dock, "true", dockerfile=context / "Dockerfile"))
    assert built(dock) == first


def test_a_built_image_gets_the_name_that_was_given(run: Any, dock: Engine, context: Path) -> None:
    profile = dock.profile(dockerfile=context / "Dockerfile").model_copy(update={"image": "hermes-exec:mine"})
    run(_open_and_close(DockerBackend(profile)))
    assert "hermes-exec:mine" in built(dock)


async def _open_and_close(backend: DockerBackend) -> None:
    await backend.open()
    await backend.close()


def test_a_build_that_fails_tells_why_and_leaves_no_image(run: Any, dock: Engine, context: Path) -> None:
    (context / "Dockerfile").write_text(f"FROM {BUSYBOX}\nCOPY no-such-file /\n")
    with pytest.raises(PlaceUnavailable, match="could not be built.*no-such-file"):
        run(shown(dock, "true", dockerfile=context / "Dockerfile"))
    assert built(dock) == set()


def test_a_dockerfile_that_is_not_there_is_told(run: Any, dock: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        run(shown(dock, "true", dockerfile=tmp_path / "Dockerfile"))


def test_requirements_are_installed_on_top_of_an_image_once(
    run: Any, dock: Engine, tmp_path: Path, pip_image: str
) -> None:
    options: dict[str, Any] = {"requirements": ["hermes-exec-test-wheel"]}
    command = "python3 -c 'import hermes_exec_test_wheel as wheel; print(wheel.WORD)'"
    assert run(shown(dock, command, pip_image, **options)) == "installed\n"
    first = built(dock)
    run(shown(dock, "true", pip_image, **options))
    assert built(dock) == first
    with pytest.raises(PlaceUnavailable, match="requirements could not be installed"):
        run(shown(dock, "true", pip_image, requirements=["no-such-wheel"]))


@pytest.fixture
def pip_image(dock: Engine, tmp_path: Path) -> Generator[str]:
    """An image whose ``pip`` finds one wheel, and asks no index."""
    import ensurepip
    import sysconfig
    from pathlib import Path as AnyPath

    folder = tmp_path / "wheels"
    folder.mkdir()
    of_debian = sysconfig.get_config_var("WHEEL_PKG_DIR")  # whose Python brings none itself
    wheels = AnyPath(of_debian) if of_debian else AnyPath(ensurepip.__file__).parent / "_bundled"
    bundled = next(wheels.glob("pip-*.whl"))
    (folder / bundled.name).write_bytes(bundled.read_bytes())
    info = "hermes_exec_test_wheel-1.dist-info"
    with zipfile.ZipFile(folder / "hermes_exec_test_wheel-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("hermes_exec_test_wheel.py", "WORD = 'installed'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: hermes-exec-test-wheel\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (tmp_path / "Dockerfile").write_text(
        f"FROM {dock.image(DEBIAN)}\nCOPY wheels /wheels\n"
        f"ENV PYTHONPATH=/wheels/{bundled.name} PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_BREAK_SYSTEM_PACKAGES=1\n"
    )
    name = "hermes-exec-test-pip:1"
    list(dock.client.build(path=str(tmp_path), tag=name, rm=True, decode=True))
    yield name
    dock.client.remove_image(name, force=True)
