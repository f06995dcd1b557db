"""The outputs of programs that run tests: the forms of the tests' names, their commands, and which tests passed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LogParser = Literal["pytest", "unittest", "sympy"]
"""The program whose output is read; Django's runner prints as unittest does."""
PARSERS: tuple[LogParser, ...] = get_args(LogParser)
_COMMANDS: dict[LogParser, str] = {
    "pytest": "python3 -m pytest -rA -p no:cacheprovider",
    "unittest": "python3 -m unittest -v",
    "sympy": "python3 bin/test -C --verbose",
}
_DJANGO = "python3 tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1"
_PYTEST = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED) +(\S.*?)(?: - .*)?$")
_METHOD = re.compile(r"(\w+) \((\w[\w.<>]*)\)")
_UNITTEST = re.compile(r"^(.+?) \.\.\. ?(.*)$")
_UNITTEST_END = re.compile(r"(ok|FAIL|ERROR|skipped\b.*|expected failure|unexpected success)$")
_UNITTEST_SUMMARY = re.compile(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\w+ \(\w[\w.<>]*\)|.*\S)")
_SYMPY = re.compile(r"^(test_\w+) (ok|F|E|f|X|s)\b")
_SYMPY_FAILED = re.compile(r"^_{3,} \S+:(test_\w+) _{3,}$")
_FUNCTION = re.compile(r"test_\w+")


def choose_parser(names: Sequence[str]) -> LogParser | None:
    """Return the program whose names of tests these are; None if no program has such.

    Django's names may also be the first lines of docstrings, so that a single name in unittest's form is enough there.
    """
    if all("::" in name for name in names):
        return "pytest"
    if any("::" in name for name in names):
        return None
    if any(map(_METHOD.fullmatch, names)):
        return "unittest"
    return "sympy" if all(map(_FUNCTION.fullmatch, names)) else None


def choose_command(parser: LogParser, repo: str) -> str:
    """Return the command that runs the tests of a repository and prints the end of each."""
    is_django = parser == "unittest" and repo.rpartition("/")[2] == "django"
    return _DJANGO if is_django else _COMMANDS[parser]


def list_arguments(parser: LogParser, command: str, files: Sequence[str]) -> list[str]:
    """Return the arguments of a command for files of tests: their paths, or for unittest the names of their modules."""
    paths = [name for name in files if name.endswith(".py")]
    if parser != "unittest":
        return paths
    if "runtests.py" in command:
        paths = [name.removeprefix("tests/") for name in paths]
    return [name.removesuffix(".py").replace("/", ".") for name in paths]


def find_missing(output: str, parser: LogParser, wanted: Sequence[str]) -> list[str]:
    """Return the wanted tests that did not pass; one that is printed twice has to pass twice."""
    passed: dict[str, bool] = {}
    for name, is_passed in _READERS[parser](output.splitlines()):
        passed[_to_plain(name)] = is_passed and passed.get(_to_plain(name), True)
    return [name for name in wanted if not passed.get(_to_plain(name))]


def _to_plain(name: str) -> str:
    """Return a name as older Pythons print it, which do not repeat the method after the class."""
    found = _METHOD.fullmatch(name)
    if found and found[2].endswith(f".{found[1]}"):
        return f"{found[1]} ({found[2].removesuffix(f'.{found[1]}')})"
    return name.strip()


def _read_pytest(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield tests; a name with spaces also as its first word, which is all that the dataset has of it."""
    for line in lines:
        if (found := _PYTEST.match(line)) and found[1] != "SKIPPED":
            is_passed = found[1] in ("PASSED", "XFAIL")
            names = {found[2], found[2].split()[0], *([line.partition(" ")[2].strip()] if found[1] == "PASSED" else [])}
            yield from ((name, is_passed) for name in sorted(names))


def _read_unittest(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield tests from lines such as ``test_a (module.Class) ... ok``.

    A docstring is on a line of its own between the name and the dots, and is a name, too. What a test prints may be
    between the dots and its end, also what looks like the end of one that passed; the summary of those that did not
    counts, too.
    """
    names: list[str] = []
    described: dict[str, str] = {}
    before = ""
    for line in lines:
        if found := _UNITTEST_SUMMARY.match(line):
            yield from ((name, False) for name in (found[1], described.get(found[1])) if name)
        elif names and (end := _UNITTEST_END.match(line)):
            yield from ((name, _is_passed(end[1])) for name in names)
            names = []
        elif found := _UNITTEST.match(line):
            names = [found[1]]
            if _METHOD.fullmatch(before):
                names.append(before)
                described[before] = found[1]
            if end := _UNITTEST_END.search(found[2]):
                yield from ((name, _is_passed(end[1])) for name in names)
                names = []
        before = line.strip()


def _is_passed(word: str) -> bool:
    return word in ("ok", "expected failure")


def _read_sympy(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    for line in lines:
        if found := _SYMPY.match(line):
            yield found[1], found[2] == "ok"
        elif found := _SYMPY_FAILED.match(line):
            yield found[1], False


_READERS: dict[LogParser, Callable[[Sequence[str]], Iterator[tuple[str, bool]]]] = {
    "pytest": _read_pytest,
    "unittest": _read_unittest,
    "sympy": _read_sympy,
}
