"""Pages of docs/: their programs run, and their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
IN_ORDER = ("getting-started.md", "tutorial.md")
"""Pages whose Python blocks are one program."""


def slug(heading: str) -> str:
    """The anchor that the site gives to a heading."""
    text = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def anchors(page: Path) -> set[str]:
    return {
        slug(heading)
        for heading in HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    dead: list[str] = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (page.parent / path).resolve() if path else page
        if not (target.is_file() and target.is_relative_to(DOCS)) or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_programs_of_a_page_run_in_order_and_leave_nothing(name: str, tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    said = [text for text in re.findall(r"print\(.*\)  # (.+)", program) if re.fullmatch(r"[\w/ ]+", text)]
    assert [text for text in said if text not in done.stdout] == []


def test_the_glossary_defines_each_term_once() -> None:
    rows = re.findall(r"^\| (.+?) \| .+? \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    terms = [term for row in rows if row not in {"term", "---"} for term in row.split(", ")]
    assert len(terms) > 80
    assert sorted(terms) == sorted(set(terms))


def test_the_comparison_says_of_each_project_what_it_does_better() -> None:
    _, *sections = re.split(r"^## ", (DOCS / "comparison.md").read_text(), flags=re.MULTILINE)
    projects = {section.splitlines()[0]: section for section in sections}
    for name in ("SWE-ReX", "Fabric", "pyinfra", "inspect_ai", "Harbor"):
        assert "**What it does better.**" in projects[name]
        assert "**What differs.**" in projects[name]
