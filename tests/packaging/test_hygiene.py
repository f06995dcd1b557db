"""What every file of the checkout keeps to, told by reading them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("hermes_exec", "backends", "policies", "agent")
WRITTEN = (*SHIPPED, "tools", "benchmarks", "examples", "tests", "typings", "docs", "deploy", ".ci", ".github")
LONGEST_MODULE = 600
GENERATED = {"sync.py"}
"""Names of modules that nobody writes by hand."""
UNFINISHED = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX)\b")  # so spelt that they do not find themselves
ONE_MACHINES_PATH = re.compile(r"(?<![\w.])/(?:work|root)/")
SILENCED = re.compile(r"#\s*(?:type: |pyright: |noqa|fmt: [o]ff).*")
SILENCED_WELL = (
    re.compile(r"#\s*type: ignore\[[a-z-]+(?:, ?[a-z-]+)*\]\s+#\s*\w.*"),
    re.compile(r"#\s*pyright: ignore\[\w+(?:, ?\w+)*\]\s+#?\s*\w.*"),
    re.compile(r"#\s*noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*\s+#?\s*\w.*"),
)


def files(*folders: str, suffixes: tuple[str, ...] = (".py", ".pyi")) -> list[Path]:
    """The written files below ``folders`` and, for texts, at the top."""
    below = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    top = [path for path in ROOT.iterdir() if path.suffix in suffixes or path.name == "dev"]
    return sorted(
        path
        for path in (*below, *top)
        if path.is_file() and "__pycache__" not in path.parts and (path.suffix in suffixes or path.suffix == "")
    )


def offences(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    """``file:line: text`` of each match."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group().strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := pattern.search(line))
    ]


@pytest.mark.parametrize("folder", [*SHIPPED, "tools", "benchmarks"])
def test_no_module_outgrows_its_reader(folder: str) -> None:
    written = [path for path in files(folder) if path.name not in GENERATED]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in written}
    assert not {str(path): length for path, length in lengths.items() if length > LONGEST_MODULE}


def test_nothing_is_left_unfinished() -> None:
    assert not offences(files(*WRITTEN), UNFINISHED)


def test_every_silenced_check_says_which_and_why() -> None:
    bad = [
        offence
        for offence in offences(files(*WRITTEN), SILENCED)
        if not any(well.fullmatch(offence.split(": ", 1)[1]) for well in SILENCED_WELL)
    ]
    assert not bad


def test_no_file_names_a_path_of_one_machine() -> None:
    assert not offences(files(*WRITTEN, suffixes=(".py", ".pyi", ".md", ".toml", ".lock", ".sh")), ONE_MACHINES_PATH)
