"""README.md is short, complete without links, and its programs run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MOST_WORDS = 1200


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_readme_needs_no_link_that_a_package_index_cannot_follow() -> None:
    links = re.findall(r"\]\(([^)]+)\)|<(?:a|img)\b[^>]*(?:href|src)=\"([^\"]+)\"", README)
    assert [link for pair in links for link in pair if link and not link.startswith("https://")] == []


def test_every_file_that_the_readme_names_is_there() -> None:
    named = set(re.findall(r"`((?:docs/)?[\w-]+\.md)`", README))
    assert len(named) > 25
    assert [name for name in named if not ((ROOT / name).is_file() or (ROOT / "docs" / name).is_file())] == []


def test_the_index_of_the_readme_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [page for page in sorted(pages) if page not in README and page != "releasing.md"] == []


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    argv, env = [sys.executable, "-I", "-c", program], {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "notes.txt").read_text() == "hello\n"  # in the home folder, where `local` starts
    assert "3 in /tmp" in done.stdout
    assert "trained" in done.stdout
