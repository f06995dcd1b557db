"""Each extra, installed alone from the wheel: its commands work, and all others name the extra that they need."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.cli.app import build
from hermes_exec.config import registry
from hermes_exec.errors import MissingExtra
from hermes_exec.extras import EXTRAS, explain_import_error, install_command, require
from tests.rigs import installs
from tests.rigs.breadth import IN_FULL, choose, thorough
from tests.rigs.installs import FORMS, LIMIT_S, ROOT, SKILLS, Form

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OFFERED = [name for name in PROJECT["optional-dependencies"] if name not in {"all", "docs"}]  # no command needs docs
README = (ROOT / "README.md").read_text()
README_EXTRAS = re.findall(r"pip install '\.\[([\w,]+)\]'", README)[0]
OTHERS = {"pydantic", "pydantic_core", "typer", "rich"}
"""What every installation has."""
HOSTS = {"harbor", "inspect_ai", "minisweagent", "verifiers"}
"""The projects whose harnesses import a bridge of ours; they are not installed for us."""
BROUGHT = {"certifi", "requests", "httpx", "httpx2", "grpclib", "yarl", "_pytest"}
"""What another package brings along, imported only after that package."""
_EVERYWHERE = {"run --on local -- true", "chat -q hi --replay demo", "doctor --json"}
"""The command lines without an extra that CI tries with all extras, too."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from leaves(each, (*path, name))


@cache
def commands() -> dict[tuple[str, ...], Any]:
    before = os.environ.get("_HERMES_EXEC_COMPLETE")
    os.environ["_HERMES_EXEC_COMPLETE"] = "all"  # as for the shell's completion, every command is loaded
    try:
        return dict(leaves(build([])))
    finally:
        del os.environ["_HERMES_EXEC_COMPLETE"]
        if before is not None:
            os.environ["_HERMES_EXEC_COMPLETE"] = before


def command_of(form: Form) -> tuple[str, ...]:
    words = form.words.split()
    return next(path for at in range(4) for path in commands() if tuple(words[at : at + len(path)]) == path)


def test_every_command_has_a_form_that_is_run() -> None:
    assert {command_of(form) for form in FORMS} == set(commands())


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_a_repeated_option_is_a_usage_error(path: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    from hermes_exec.cli.app import start

    options = [each for each in commands()[path].params if each.param_type_name == "option"]
    single = [each for each in options if not (each.is_flag or each.multiple or each.count)]
    for option in single:
        name = max(option.opts, key=len)
        assert start([*path, option.opts[0], "1", name, "2"]) == 2
        assert capfd.readouterr().err.startswith(f"hermes-exec: {name} is given more than once, but takes one value.")


@pytest.mark.parametrize(
    "words",
    [
        "run -C /a --cwd /b -- true",
        "run --cwd /a --cwd=/b -- true",
        "chat -q a --query b",
        "--config a --config b jobs",
        "skill run x --on a --on b",
    ],
)
def test_the_quick_parser_refuses_a_repeated_option(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "hermes_exec", *words.split()], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"hermes-exec: --\w+ is given more than once, but takes one value\. Try: .*\n", done.stderr)


def test_the_install_of_the_readme_has_the_extras_of_its_commands() -> None:
    needed = {"agent", "chat"}  # of hermes-cli
    for words in re.findall(r"^\$ hermes-exec (.*)", README, re.MULTILINE):
        places = re.findall(r"(?:--on |\+)(\w+)", words)
        needed |= {registry.BUILT_INS[place].extra for place in places}
        needed |= {"skill": {"skills"}, "serve": {"server"}}.get(words.split()[0], set())
    assert needed - {""} == set(README_EXTRAS.split(","))


def test_every_extra_is_known() -> None:
    assert set(EXTRAS) == set(OFFERED)


def test_every_package_that_is_imported_is_of_an_extra() -> None:
    known = {module for modules in EXTRAS.values() for module in modules} | OTHERS | BROUGHT | HOSTS
    ours = [ROOT / "hermes_exec", ROOT / "backends", ROOT / "policies", ROOT / "agent"]
    imported = {name for folder in ours for path in folder.rglob("*.py") for name in imports(path)}
    assert imported - set(sys.stdlib_module_names) - known == set()


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        yield from (top for name in names if not (top := name.partition(".")[0]).startswith("hermes_exec"))


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'hermes_exec.nothing'", name="hermes_exec.nothing"),
        ModuleNotFoundError("No module named 'paramiko.nothing'", name="paramiko.nothing"),
        ModuleNotFoundError("No module named 'nothing'", name="nothing"),
        ImportError("cannot import name 'x' from 'paramiko'", name="paramiko"),
    ],
    ids=str,
)
def test_only_a_missing_package_is_explained(error: ImportError) -> None:
    assert explain_import_error(error) is None


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(MissingExtra) as caught:
        require("ssh", "ssh")
    assert caught.value.what == "ssh: the package 'paramiko' of the extra 'ssh' is not installed"
    assert caught.value.remedy == install_command("ssh")


def test_a_checkout_is_installed_from_again() -> None:
    assert re.fullmatch(rf".*pip install .*-e '?{re.escape(str(ROOT))}\[ssh\]'?", install_command("ssh"))


class Installed:
    """An environment with some extras, and a home folder for its commands."""

    def __init__(self, bin_folder: Path, home: Path) -> None:
        self.bin = bin_folder
        self.home = home
        installs.prepare(home)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "DOCKER_HOST": "unix:///nowhere",
            "XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state"),
            "APPTAINER_CACHEDIR": str(home / "apptainer"),
        }  # fmt: skip

    def run(self, form: Form) -> tuple[int, str]:
        """Its exit code, and all that it printed."""
        words = [word.replace("HOME", str(self.home)) for word in form.words.split()]
        options: dict[str, Any] = {"cwd": self.home / "work", "env": self.env | form.env}
        argv = [str(self.bin / "hermes-exec"), *words]
        if form.terminal is not None:
            return self._in_terminal(argv, form.terminal, options)
        if not form.serves:
            done = subprocess.run(
                argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=LIMIT_S, **options,
            )  # fmt: skip
            return done.returncode, done.stdout
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options) as child:
            assert child.stdout is not None
            said = ""
            for line in child.stdout:
                said += line
                if line.startswith("{") and not line.startswith('{"error"'):  # which ends it without a signal
                    child.send_signal(signal.SIGINT)
            code = child.wait(LIMIT_S)
        return (0 if code == 130 else code), said

    def find_missing(self) -> set[str]:
        """Return the extras with a module that is not in the environment; another extra may have brought it."""
        program = (
            "import json, sys\nfrom importlib.util import find_spec\n"
            "print(json.dumps([e for e, names in json.load(sys.stdin).items() if not all(map(find_spec, names))]))"
        )
        argv = [str(self.bin / "python"), "-I", "-c", program]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, input=json.dumps(EXTRAS))
        return set(json.loads(done.stdout))

    def _in_terminal(self, argv: list[str], typed: bytes, options: dict[str, Any]) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, **options) as child:
            os.close(theirs)
            os.write(ours, typed)
            said = b""
            try:
                while part := os.read(ours, 65536):
                    said += part
            except OSError:  # the terminal's other side is closed
                pass
            finally:
                os.close(ours)
            return child.wait(LIMIT_S), said.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installs.share_wheel(tmp_path_factory)


@thorough
@pytest.mark.slow
@pytest.mark.required
@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", ["", *OFFERED, README_EXTRAS, "all"])
def test_each_command_works_or_names_the_extra_that_it_needs(wheel: Path, tmp_path: Path, extra: str) -> None:
    installed = Installed(installs.install(wheel, extra, tmp_path / "environment"), tmp_path / "home")
    has = set(OFFERED) if extra == "all" else set(extra.split(","))
    whole = extra in {"", "all"}
    for form in forms_of(extra):
        if not (whole or has & set(form.needs) or form.words == "doctor --json"):
            continue
        code, said = installed.run(form)
        assert "Traceback" not in said, (form, said)
        if lacking := [need for need in form.needs if need not in has]:
            assert code == 2, (form, code, said)
            (line,) = said.splitlines()
            line = to_text(line)
            assert re.search(rf" of the extra '{lacking[0]}' is not installed\. Try: .*pip install .*", line), (
                form,
                line,
            )
            assert f"'{wheel}[{lacking[0]}]'" in line
        else:
            assert code == form.code, (form, code, said)
        if form.words == "doctor --json":
            check_doctor(said, installed)


def forms_of(extra: str) -> list[Form]:
    """The command lines to try; CI leaves out what the environment of another extra shows.

    A bare installation refuses one command line of each extra, and of the commands of a group that fail, one is tried.
    """
    if IN_FULL or extra == "skills":
        return [*FORMS]
    if not extra:
        groups: defaultdict[tuple[str, ...], list[Form]] = defaultdict(list)
        for form in FORMS:
            failing = (form.words.split()[0], "fails") if form.code == 2 else (form.words, str(form.env))
            groups[form.needs or failing].append(form)
        taken = [form for group, forms in groups.items() for form in choose(" ".join(group), forms, 1)]
        return [form for form in FORMS if form in taken]
    of_skills = [form for form in FORMS if form.needs == SKILLS]
    forms = [form for form in FORMS if form.needs or form.words in _EVERYWHERE]
    return [form for form in forms if form not in of_skills[3:]]


def to_text(line: str) -> str:
    """An error as a person reads it; with --json it is an object."""
    if not line.startswith("{"):
        return line
    error = json.loads(line)["error"]
    return f"{error['message']}. Try: {error['remedy']}"


def check_doctor(said: str, installed: Installed) -> None:
    """Each extra whose modules are missing is one row, in the place that needs it or among our own checks."""
    rows = [check for kind in json.loads(said) for check in kind["checks"]]
    missing = installed.find_missing()
    for extra in OFFERED:
        offered = [row for row in rows if f"[{extra}]'" in row["remedy"]]
        assert len(offered) == (1 if extra in missing else 0), (extra, offered)


@thorough
@pytest.mark.slow
@pytest.mark.required
def test_the_command_that_is_named_installs_the_extra(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(installs.install(wheel, "", tmp_path / "environment"), tmp_path / "home")
    form = next(form for form in FORMS if form.needs == ("ssh",))
    _, said = installed.run(form)
    cache_folder = os.environ.get("UV_CACHE_DIR", str(ROOT / ".cache/uv"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        said.partition("Try: ")[2], shell=True, check=True, capture_output=True,  # as a person would
        env=os.environ | {"UV_CACHE_DIR": cache_folder, "PATH": path},
    )  # fmt: skip
    assert installed.run(form)[0] == form.code
