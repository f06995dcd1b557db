"""Images for Apptainer, unpacked or built once per session."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from tests.conftest import require_engines, require_part
from tests.rigs import images

if TYPE_CHECKING:
    from pathlib import Path


def program() -> str:
    """Its path; skips when it is not here or starts no container."""
    require_engines()
    path = require_part("apptainer", "the container runtime under test")
    if os.geteuid() == 0:
        os.environ.setdefault("APPTAINER_MESSAGELEVEL", "0")
    return path


def tree(folder: Path, kind: str = "debian") -> Path:
    """An unpacked root file system that was never built."""
    program()
    require_part("apt-get", "makes the images") if kind == "debian" else require_part("busybox", "is the image")
    return images.unpacked(getattr(images, kind)(), folder / kind)


def image_file(folder: Path, of: Path) -> Path:
    """A SIF file of a tree."""
    made = folder / f"{of.name}.sif"
    fast = ["--mksquashfs-args", "-comp lz4 -no-xattrs"]
    done = subprocess.run(
        [program(), "-s", "build", *fast, str(made), str(of)],
        check=False,
        capture_output=True,
        env={**os.environ, "APPTAINER_USERNS": "1", "APPTAINER_CACHEDIR": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return made
