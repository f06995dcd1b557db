"""A registry's folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.skill_makers import home_in

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome


@pytest.fixture
def home(tmp_path: Path) -> RegistryHome:
    """Folders of a registry, which are not made yet."""
    return home_in(tmp_path)
