"""deploy/hermes-exec.def: built as its own first lines say, on a base that has its packages, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.rigs import apptainer, images
from tests.rigs.stack_images import DEPLOY, ROOT, core_base

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Image:
    """An image that was built, as an unpacked tree."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "image"
        self.env = {**os.environ, "APPTAINER_USERNS": "1", "APPTAINER_CACHEDIR": str(folder / "cache")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What the image runs, with nothing of this machine in it."""
        argv = [apptainer.program(), "-s", "run", "--containall", str(self.tree), *words]
        return subprocess.run(argv, check=False, capture_output=True, text=True, env=self.env)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Generator[Image]:
    program = apptainer.program()
    folder = tmp_path_factory.mktemp("apptainer")
    made = Image(folder)
    try:
        base = images.unpacked(core_base(), folder / "base")
        context = folder / "checkout"
        shutil.copytree(DEPLOY, context / "deploy")
        wheel = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(context / "dist")]
        subprocess.run([*wheel, str(ROOT)], check=True, capture_output=True)
        given = ["--build-arg", "BOOTSTRAP=localimage", "--build-arg", f"BASE={base}"]
        built = subprocess.run(
            [program, "-s", "build", "--sandbox", *given, str(made.tree), "deploy/hermes-exec.def"],
            check=False,
            capture_output=True,
            text=True,
            cwd=context,
            env=made.env,
        )
        assert built.returncode == 0, built.stderr[-2000:]
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # half a gigabyte


def test_the_image_has_the_command_line_and_the_agent(image: Image) -> None:
    done = image.run("run", "--", "uname", "-s")
    assert (done.stdout, done.returncode) == ("Linux\n", 0), done.stderr
    told = image.run("chat", "--replay", "demo", "--approve", "allow")
    assert told.returncode == 0, told.stderr
    assert "[scripted]" in told.stdout
    nobody = image.run("chat", "-q", "hello")
    assert nobody.returncode == 2
    assert "DEFAULT_MODEL" in nobody.stderr
    listed = {each["type"]: each for each in json.loads(image.run("backends", "--json").stdout)}
    assert listed["local"]["usable"]
