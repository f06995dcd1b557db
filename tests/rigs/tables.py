"""Tables in docs/security.md that programs write, each between its two marks."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def replace_block(begin: str, end: str, text: str, page: Path = PAGE) -> None:
    """Write ``text`` between the marks of a page."""
    old = page.read_text(encoding="utf-8")
    head, found, rest = old.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"{page} has no marks {begin}")
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
