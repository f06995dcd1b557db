"""The words of ``./dev``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_dev import lowest, suite
from hermes_dev.cast import write_cast
from hermes_dev.checks import run_checks
from hermes_dev.durations import write_durations
from hermes_dev.place import CACHE, ROOT, DevError, UsageError, call, replace, say, venv, venv_python
from hermes_dev.places import write_table
from hermes_dev.provision import provision
from hermes_dev.setup import ensure
from hermes_dev.suite import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

USAGE = """\
usage: ./dev COMMAND [ARGUMENTS]

  demo              see the main job done on real input, on every target that is usable here
  test              the checks (ruff, mypy, pyright, import-linter) of what may differ since it passed, and a sample of
                    the suite that needs no engine. HERMES_DEV_SEED=N repeats the sample of a run that printed it
  test ARGUMENTS    the suite alone, with these pytest arguments; what is named runs in full
  test --provision  first install the Debian packages that the suite requires; says which. Then run the whole suite but
                    repeats. A failed test runs once more, alone; one that passes then is unsteady, listed in
                    tests/unsteady.md
  test --all        the whole suite with its repeats; with --provision, too
  test --shard NAME the tests of one shard: core, containers, clouds, gate or agent
  test --python 3.13
                    the same with another Python, in an environment of its own (.venv-3.13)
  test --lowest     a part of the suite with the oldest dependencies that pyproject.toml permits, in .venv-lowest
  lint              the checks alone, of everything
  fmt [PATHS]       put the code into its format and fix what ruff can fix
  generate          write the blocking interface (hermes_exec/sync.py), and what policies are rendered to
  figures [NAME]    measure the tables of docs/security.md again and write them: acts, judge, harms, controls or matrix;
                    without a name all but the matrix, which needs every engine
  bench             measure, and compare with the physical floor and peers
  cast              record docs/session.cast, a session that starts in a checkout and ends with a skill
  docs              build the site of the documentation into .cache/site; with --serve, serve it and follow changes
  soak [NAME]       the tests that take minutes, or those alone that have NAME in their names, such as storm
  shell [COMMAND]   a shell (or COMMAND) with the environment's programs first on the PATH
  setup             make the environment; every command does so by itself when it is due
  lock              choose the newest allowed version of every tool and write dev.lock

Everything is kept in the checkout (.venv, .cache) except what --provision installs.
PYTHON=/path/to/python chooses the Python, in an environment of its own (.venv-3.13 and the like).
"""


IMAGE_EXTRAS = ("agent", "bubblewrap", "chat", "memory", "server", "skills", "ssh")
"""What of our extras is in the image of deploy/."""


FIGURES = {
    "acts": ("tests.rigs.contained", "--acts", "--write"),
    "judge": ("tests.rigs.judged",),
    "harms": ("tests.harm.table",),
    "controls": ("tests.rigs.controls",),
    "matrix": ("tests.rigs.matrix",),
}
"""The programs that write the tables of docs/security.md."""


def main(words: Sequence[str]) -> int:
    """Run one command and return the exit code."""
    commands: Mapping[str, Callable[[list[str]], int]] = {
        "demo": demo, "test": test, "lint": lint, "fmt": fmt, "generate": generate, "figures": figures,
        "bench": bench, "cast": cast, "docs": docs, "soak": soak, "shell": shell, "setup": setup, "lock": lock,
    }  # fmt: skip
    name, arguments = (words[0], list(words[1:])) if words else ("help", [])
    if name in {"help", "-h", "--help"}:
        print(USAGE, end="")
        return 0
    if name not in commands:
        say(f"there is no command {name!r}. Try: ./dev help")
        return 2
    try:
        return commands[name](arguments)
    except DevError as error:
        say(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130


def setup(arguments: list[str]) -> int:
    """Make the environment."""
    if "--provision" in arguments:
        provision()
    ensure(provision="--provision" in arguments)
    say(f"{venv().name} is ready")
    return 0


def demo(arguments: list[str]) -> int:
    """Become ``hermes-exec demo``; without arguments its audit is kept in the checkout."""
    ensure(provision=True)
    state = {} if arguments else {"XDG_STATE_HOME": str(CACHE / "state")}
    return replace([venv_python(), "-I", program("hermes-exec"), "demo", *arguments], **state)


def test(arguments: list[str]) -> int:
    """Run the checks and the suite; pytest's closing line is the last one."""
    if "--lowest" in arguments:
        ensure()
        return lowest.run([word for word in arguments if word != "--lowest"])
    request = suite.parse(arguments)
    if request.python:
        suite.become(request)
    if request.provision:
        provision()
    ensure(provision=request.provision)
    return suite.run(request)


def soak(arguments: list[str]) -> int:
    """Run the tests that take minutes, each with half an hour at most; a plain word selects by name."""
    ensure()
    if arguments and not arguments[0].startswith("-") and not (ROOT / arguments[0].partition("::")[0]).exists():
        arguments = ["-k", *arguments]
    return replace(pytest("-m", "soak", "--timeout=1800", *arguments))


def lint(_arguments: list[str]) -> int:
    """Run the checks alone."""
    ensure()
    return int(bool(run_checks()))


def fmt(arguments: list[str]) -> int:
    """Fix what ruff can fix, then format; show what a person has to fix."""
    ensure()
    paths = arguments or ["."]
    left = call([program("ruff"), "check", "--fix", "--quiet", *paths])
    return call([program("ruff"), "format", *paths]) or left


def generate(arguments: list[str]) -> int:
    """Write what is generated; ``--print`` shows it. The work is done by the environment's own Python.

    ``--places`` writes the table of targets in docs/conformance.md instead, from the last conformance run;
    ``--durations`` writes tests/durations.json from the last run with workers.
    """
    if "--durations" in arguments:
        return write_durations()
    if "--places" in arguments:
        return write_table()
    if "--here" not in arguments:
        ensure()
        return replace([venv_python(), "-I", str(ROOT / "tools"), "generate", "--here", *arguments])
    from hermes_dev.generate import main as generated
    from hermes_dev.rendered import write
    from hermes_exec.errors import ConfigError

    if "--print" not in arguments:
        try:
            write()
        except ConfigError as error:
            raise UsageError(str(error)) from error
    return generated(arguments)


def figures(arguments: list[str]) -> int:
    """Run the programs that write the tables of docs/security.md, one after the other; stop at the first failure."""
    unknown = [name for name in arguments if name not in FIGURES]
    if unknown:
        raise UsageError(f"there are no figures {unknown[0]!r}. Try: {', '.join(FIGURES)}")
    ensure(provision=True)
    for name in arguments or [each for each in FIGURES if each != "matrix"]:
        say(f"figures: {name}")
        if code := call([venv_python(), "-m", *FIGURES[name]]):
            return code
    return 0


def bench(arguments: list[str]) -> int:
    """Become the benchmarks."""
    ensure()
    return replace([venv_python(), "-I", "-m", "benchmarks", *arguments])


def cast(_arguments: list[str]) -> int:
    """Record docs/session.cast."""
    ensure()
    return write_cast()


def docs(arguments: list[str]) -> int:
    """Build the site of the documentation; a warning is an error. ``--serve`` serves it and follows changes."""
    ensure()
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # the theme's notice about a version that we exclude
    mkdocs = [venv_python(), "-I", "-m", "mkdocs"]
    config = f"--config-file={ROOT / 'mkdocs.yml'}"
    if "--serve" in arguments:
        return replace([*mkdocs, "serve", config, *(word for word in arguments if word != "--serve")])
    return replace([*mkdocs, "build", "--strict", config, *arguments])


def shell(arguments: list[str]) -> int:
    """Become a shell, or a command, that finds the environment's programs first."""
    ensure()
    os.environ["PATH"] = f"{venv() / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return replace(arguments or [os.environ.get("SHELL", "/bin/sh")])


def lock(arguments: list[str]) -> int:
    """Write dev.lock again: exact versions with hashes, good for every Python that we support; then the image's."""
    ensure()
    compile_ = [program("uv"), "pip", "compile", "--quiet", "--universal", "--python-version=3.11"]
    compile_ += ["--generate-hashes", "--custom-compile-command=./dev lock"]
    code = call([*compile_, "--upgrade", "--group=dev", "pyproject.toml", "--output-file=dev.lock", *arguments])
    if code:
        return code
    extras = [f"--extra={name}" for name in IMAGE_EXTRAS]
    return call(
        [*compile_, *extras, "--constraints=dev.lock", "pyproject.toml", "--output-file=deploy/requirements.txt"]
    )


def program(name: str) -> str:
    """The path of one of the environment's programs."""
    return str(venv() / "bin" / name)
