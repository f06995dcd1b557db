"""The children of ``./dev`` keep their caches in the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev import place

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import asyncio
from find_cache import find_cache
from hermes_exec_policies.gate.child_process import ChildProcess
async def ask():
    async with ChildProcess() as child:
        return await child.call(60, find_cache)
print(asyncio.run(ask()))
"""
FIND_CACHE = """
import stevedore._cache
def find_cache() -> str:
    return stevedore._cache._get_cache_dir()
"""


def test_no_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.endswith(("CACHE_DIR", "CACHEDIR", "_cache", "CACHE_HOME"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(place, "CACHE", tmp_path / "cache")
    (tmp_path / "find_cache.py").write_text(FIND_CACHE, encoding="utf-8")

    def run(*argv: str, **more: str) -> str:
        env = place.environment() | more
        found = subprocess.run(argv, check=True, cwd=ROOT, env=env, capture_output=True, text=True)
        return found.stdout.strip()

    assert run(sys.executable, "-m", "pip", "cache", "dir") == str(tmp_path / "cache/pip")
    assert run(str(Path(sys.executable).with_name("uv")), "cache", "dir") == str(tmp_path / "cache/uv")
    # The gate's child has an environment of its own; bandit caches entry points there through stevedore.
    assert run(sys.executable, "-c", ASK, PYTHONPATH=str(tmp_path)) == str(tmp_path / "cache/xdg/python-entrypoints")
    assert not list(home.iterdir())
