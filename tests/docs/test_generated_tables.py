"""The generated tables of docs/benchmarks.md and docs/conformance.md, and the commands that rewrite them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from hermes_dev import places
from hermes_dev.place import DevError

DOCS = Path(__file__).parents[2] / "docs"


def test_benchmarks_replace_the_table_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Top\n<!-- benchmarks -->\nold\n<!-- end of benchmarks -->\nBottom\n")
    bench.write_page("| new |", page)
    assert page.read_text() == "# Top\n<!-- benchmarks -->\n| new |\n<!-- end of benchmarks -->\nBottom\n"


def test_the_page_of_benchmarks_has_a_table_that_can_be_replaced(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text((DOCS / "benchmarks.md").read_text())
    bench.write_page("| new |", page)
    assert "<!-- benchmarks -->\n| new |\n<!-- end of benchmarks -->" in page.read_text()


def conformance(folder: Path, monkeypatch: pytest.MonkeyPatch, results: object) -> Path:
    """A copy of the page, and these results of the last conformance run."""
    page, shown = folder / "conformance.md", folder / "conformance.json"
    page.write_text((DOCS / "conformance.md").read_text())
    shown.write_text(json.dumps(results))
    monkeypatch.setattr(places, "_PAGE", page)
    monkeypatch.setattr(places, "_RESULTS", shown)
    return page


def test_results_of_the_conformance_run_become_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"passed": 7, "failed": [], "lacks": ["kill_tree"]}
    results: dict[str, object] = {"`here`": here, "`none`": here | {"passed": 0}}
    page = conformance(tmp_path, monkeypatch, results)
    assert places.write_table() == 0
    text = page.read_text()
    assert "|---|---|---|\n| `here` | 7 | kill tree |\n<!-- end of places -->" in text
    assert text.startswith("# The conformance suite")


def test_a_failed_behaviour_leaves_the_table_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = conformance(tmp_path, monkeypatch, {"`here`": {"passed": 7, "failed": ["test_x"], "lacks": []}})
    before = page.read_text()
    with pytest.raises(DevError, match="behaviours failed on `here`"):
        places.write_table()
    assert page.read_text() == before


def test_without_results_one_line_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_RESULTS", tmp_path / "none.json")
    with pytest.raises(DevError, match=r"Try: \./dev test --provision"):
        places.write_table()
