"""Tables on a terminal: columns are left out or cut, prose is wrapped, and no word is split over two lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.cli.table_layout import GAP, cut_cell, fit_columns, wrap_cell
from tests.cli.screen import Screen

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

HEADS = ("JOB", "NAME", "STATE", "COMMAND")
ROWS = [["kuba-tiro", "train", "running", "python train.py --epochs 100 --data /srv/data"]]
WORDS = st.text("abc ", max_size=60)


def test_a_table_that_fits_has_its_natural_widths() -> None:
    layout = fit_columns(HEADS, ROWS, 200)
    assert layout.columns == (0, 1, 2, 3)
    assert layout.widths == (9, 5, 7, 45)


def test_the_widest_column_is_cut_first() -> None:
    layout = fit_columns(HEADS, ROWS, 50)
    assert layout.columns == (0, 1, 2, 3)
    assert layout.widths == (9, 5, 7, 23)
    assert cut_cell(ROWS[0][3], 23) == "python train.py --epoc…"


def test_columns_are_left_out_in_their_order() -> None:
    layout = fit_columns(HEADS, ROWS, 30, drop=("NAME", "STATE"))
    assert [HEADS[at] for at in layout.columns] == ["JOB", "STATE", "COMMAND"]
    layout = fit_columns(HEADS, ROWS, 22, drop=("NAME", "STATE"))
    assert [HEADS[at] for at in layout.columns] == ["JOB", "COMMAND"]


def test_an_empty_column_is_left_out() -> None:
    rows = [["kuba-tiro", "", "running", "make"]]
    assert fit_columns(HEADS, rows, 200, drop=("NAME",)).columns == (0, 2, 3)
    assert fit_columns(HEADS, rows, 200).columns == (0, 1, 2, 3)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=5), st.integers(40, 200))
def test_a_table_is_never_wider_than_its_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    layout = fit_columns(("A", "B", "C"), rows, width, drop=("B",), wrap=("C",))
    assert sum(layout.widths) + GAP * (len(layout.widths) - 1) <= width


@given(WORDS, st.integers(5, 40))
def test_prose_is_broken_between_words(text: str, width: int) -> None:
    lines = wrap_cell(text, width)
    assert all(len(line) <= width for line in lines)
    words = text.split()
    shown = " ".join(lines).split()
    assert len(shown) == len(words)
    assert all(a == b or (len(b) > width and a.endswith("…")) for a, b in zip(shown, words, strict=True))


@pytest.mark.parametrize(("text", "width"), [("abcdef", 6), ("abcdef", 5), ("", 3), ("ab cd", 4)])
def test_a_cut_cell_fits(text: str, width: int) -> None:
    assert len(cut_cell(text, width)) <= width


def test_a_terminal_shows_whole_lines(cli: Cli) -> None:
    cli("run", "--detach", "--name", "a-name", "sleep 900; : " + "many words " * 20)
    here = Screen(cli, "jobs")  # 100 columns
    try:
        assert here.end() == 0
    finally:
        here.close()
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in here.shown.decode().splitlines()]
    assert len(lines) == 2
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].split()[0] == "JOB"
    assert lines[1].endswith("…")
