"""Whoever is cancelled while a container is started or ended leaves none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from tests.rigs import cancelled
from tests.rigs.bounded import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
def test_whenever_it_comes_no_instance_is_left(
    tree: Path,
    instances: Callable[[Path], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    many: Any,
) -> None:
    folders = tmp_path_factory.mktemp("folders")
    monkeypatch.setenv("TMPDIR", str(folders))
    within(50)(many(lambda: SingularityBackend(SingularityProfile(image=str(tree)))))
    wait_until(lambda: (instances(tree), list(folders.iterdir())) == ([], []))
