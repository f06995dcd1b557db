"""Any script gives through a session what it gives by bash itself."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.properties.conftest import Bare, bare_bash
from tests.properties.shellscripts import SCRIPTS, STEPS, quoted
from tests.rigs.breadth import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.result import Result
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing import SuiteTarget

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
CALM = settings(
    deadline=None,
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_LINE = re.compile(rb"(?:eval: )?line \d+")
_PARSED = re.compile(rb"(?:eval|-c): (?:line \d+: )?")


@given(script=SCRIPTS, long=st.booleans())
@CALM
@example(script="f() {\nno_such_command_here\nlocal\n}\nf a\nif\n", long=False)
@example(script="echo 'a\n\nb'; no_such_command_here\n\n\nno_such_command_here\nexit 300", long=False)
@example(script="cat <<E\nnever ended", long=True)
def test_a_script_gives_what_bash_gives(
    script: str, long: bool, place: SuiteTarget, terminal: Terminal, environment: Mapping[str, str]
) -> None:
    if long:  # such text takes another way to the shell
        script += "\n: " + "x" * 5000

    async def ours(folder: str) -> Result:
        async with await terminal.session(cwd=folder) as session:
            return await session.run(script)

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        result = place.run(ours(one))
        bare = bare_bash(script, environment, Path(two))
    assert code_of(result) == bare.code
    assert result.stdout == bare.stdout.replace(two.encode(), one.encode())
    stderr = bare.stderr.replace(two.encode(), one.encode())
    assert _PARSED.sub(b"", result.stderr) == _PARSED.sub(b"", stderr)


@dataclass(frozen=True)
class Step:
    """One command of a session, and whether our shell is made to exit after it."""

    text: str
    restart: bool


def one_bash(texts: list[str], environment: Mapping[str, str]) -> list[Bare]:
    """What one bash gives for each of the texts that it gets to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = [
            f"eval {quoted(text)} >|{name}/{n}.out 2>|{name}/{n}.err; "
            f'__s=$?; echo "$__s" >|{name}/{n}.code; (exit "$__s")'
            for n, text in enumerate(texts)
        ]
        work = folder / "work"
        work.mkdir()
        last = bare_bash("\n".join(driver), environment, work)
        gave: list[Bare] = []
        for n in range(len(texts)):
            code = folder / f"{n}.code"
            out = folder / f"{n}.out"
            if not out.exists():
                break
            value = int(code.read_text()) if code.exists() else last.code
            err = (folder / f"{n}.err").read_bytes()
            gave.append(Bare(out.read_bytes(), err, value))
            if not code.exists():
                break
        return [
            Bare(b.stdout.replace(name.encode(), b"@"), b.stderr.replace(name.encode(), b"@"), b.code) for b in gave
        ]


def compare(steps: list[Step], place: SuiteTarget, terminal: Terminal, environment: Mapping[str, str]) -> None:
    """Run the steps in a session and in one bash, and see that each gives the same."""

    async def ours(folder: str) -> list[Result]:
        results: list[Result] = []
        async with await terminal.session(cwd=f"{folder}/work") as session:
            for step in steps:
                results.append(await session.run(step.text))
                if step.restart:
                    await session.run("exit")
        return results

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        results = place.run(ours(folder))
    bare = one_bash([step.text for step in steps], environment)
    for step, result, wanted in zip(steps, results, bare, strict=False):
        assert code_of(result) == wanted.code, step
        stdout = _LINE.sub(b"line N", result.stdout.replace(folder.encode(), b"@"))
        assert stdout == _LINE.sub(b"line N", wanted.stdout), step
        stderr = _LINE.sub(b"line N", result.stderr.replace(folder.encode(), b"@"))
        assert stderr == _LINE.sub(b"line N", wanted.stderr), step


def code_of(result: Result) -> int | None:
    """The exit code, or the negative number of the signal, as ``subprocess`` tells it."""
    return result.exit_code if result.signal is None else -result.signal


@given(texts=st.lists(STEPS, min_size=2, max_size=10))
@CALM
def test_the_commands_of_a_session_give_what_one_bash_gives(
    texts: list[str], place: SuiteTarget, terminal: Terminal, environment: Mapping[str, str]
) -> None:
    compare([Step(text, restart=False) for text in texts], place, terminal, environment)


@given(
    steps=st.lists(st.builds(Step, STEPS.filter(lambda text: "$?" not in text), st.booleans()), min_size=2, max_size=8)
)
@CALM
def test_a_shell_that_exits_in_between_makes_no_difference(
    steps: list[Step], place: SuiteTarget, terminal: Terminal, environment: Mapping[str, str]
) -> None:
    compare(steps, place, terminal, environment)
