"""Parsing of durations, sizes, variables and ``TARGET:PATH``; usage errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.cli import main
from hermes_exec.cli.arguments import parse_duration, parse_limits, parse_variables
from hermes_exec.cli.console import report
from hermes_exec.cli.fast_args import RunArguments, parse_run
from hermes_exec.cli.remote_path import RemotePath, join_name, parse_path
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec.terminal.limits import Limits

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

TALK = Path(sys.executable).with_name("hermes-cli")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("1.5", 1.5), (".5s", 0.5), ("10m", 600), ("2h", 7200), ("1d", 86400), (" 3 s", 3)],
)
def test_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1", "1e3", "10 minutes", "٣", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("007", 7), ("999999999", 999_999_999)])
def test_ascii_digits_are_a_number(text: str, number: int) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1.0", "1_0", "²", "٣", "x", "1000000000", "9" * 5000])
def test_other_text_and_numbers_out_of_range_are_no_number(text: str) -> None:
    assert parse_number(text) is None
    assert parse_number("3", 4) is None


def test_limits() -> None:
    words = ["memory=2G", "cpu=10m", "processes=64", "file-size=512MiB", "open-files=256"]
    expected = Limits(cpu_s=600, memory_mib=2048, processes=64, file_size_mib=512, open_files=256)
    assert parse_limits(words) == expected


def test_a_limit_in_bytes_is_rounded_up() -> None:
    assert parse_limits(["memory=1"]) == Limits(memory_mib=1)


def test_no_limits_are_none() -> None:
    assert parse_limits([]) is None


@pytest.mark.parametrize("word", ["memory", "ram=1G", "memory=lots", "processes=1.5", "processes=0", "cpu=fast"])
def test_what_is_no_limit_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_limits([word])


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "from here")
    assert parse_variables(["A=1", "B=", "C=x=y", "HERE"]) == {"A": "1", "B": "", "C": "x=y", "HERE": "from here"}


def test_a_variable_that_is_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match="NOWHERE_AT_ALL"):
        parse_variables(["NOWHERE_AT_ALL"])


@pytest.mark.parametrize(
    ("text", "target", "path"),
    [
        ("file", None, "file"),
        ("./a:b", None, "./a:b"),
        ("/srv/http://x", None, "/srv/http://x"),
        ("local:/x", "local", "/x"),
        ("box:notes.txt", "box", "notes.txt"),
        ("box:", "box", "."),
        ("box:~/x", "box", "~/x"),
        ("box:/a:b", "box", "/a:b"),
        ("docker:python:3.11:/srv", "docker:python:3.11", "/srv"),
        ("docker:@web:./x", "docker:@web", "./x"),
        ("ssh://me@host:2222:/tmp/x", "ssh://me@host:2222", "/tmp/x"),
        ("ssh://me@host:x", "ssh://me@host", "x"),
        ("singularity:/images/a.sif:/tmp", "singularity:/images/a.sif", "/tmp"),
        ("docker:a+ssh://host:..", "docker:a+ssh://host", ".."),
    ],
)
def test_target_and_path(text: str, target: str | None, path: str) -> None:
    assert parse_path(text) == RemotePath(target, path)


@pytest.mark.parametrize("text", ["", "ssh://host"])
def test_a_target_without_a_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("a/b", "/to/b"), ("a/b/", "/to/b"), ("a/.", "/to"), ("/", "/to"), ("b", "/to/b")],
)
def test_what_goes_into_a_folder_keeps_its_name(source: str, expected: str) -> None:
    assert join_name("/to", source) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "true"], {}),
        (["run", "--", "ls", "-la"], {}),
        (["run", "ls", "--on", "x"], {}),
        (["run", "--on", "box", "-C", "/x", "true"], {"on": ["box"], "cwd": "/x"}),
        (["run", "--on=box", "--timeout=1", "true"], {"on": ["box"], "timeout": "1"}),
        (["run", "-e", "A=1", "--env=B=2", "true"], {"env": ["A=1", "B=2"]}),
        (["run", "-n", "--merge", "--no-redact", "true"], {"stdin": False, "merge": True, "redact": False}),
        (["run", "--shell", "--grace", "1", "--json", "true"], {"shell": True, "grace": "1", "json": True}),
    ],
)
def test_plain_command_lines_are_understood_without_typer(words: list[str], expected: dict[str, Any]) -> None:
    start = next(at for at, word in enumerate(words) if word in {"true", "ls"})
    assert parse_run(words) == RunArguments(words[start:], **expected)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run"],
        ["run", "--"],
        ["run", "--help"],
        ["run", "--on"],
        ["run", "-obox", "true"],
        ["run", "-in", "true"],
        ["run", "--merge=yes", "true"],
        ["run", "--pty", "true"],
        ["--debug", "run", "true"],
        ["jobs"],
    ],
)
def test_all_other_command_lines_are_left_to_typer(words: list[str]) -> None:
    assert parse_run(words) is None


@pytest.mark.parametrize(
    "words",
    [
        ["echo", "a", "-n", "--json"],
        ["--", "echo", "--", "b"],
        ["-C", "/tmp", "-e", "A=1", "pwd; echo $A"],
        ["--timeout", "0.3", "sleep 9"],
        ["--no-shell", "--json", "echo"],
        ["--merge", "echo out; echo err >&2"],
        ["--timeout", "soon", "true"],
        ["--on", "nowhere", "true"],
    ],
)
def test_typer_understands_them_alike(cli: Cli, words: list[str]) -> None:
    quick = cli("run", *words)
    typers = cli("--no-audit", "run", *words)  # an option before the command is none of the plain ones

    def gist(text: bytes) -> bytes:
        return b" ".join(word for word in text.split() if not word.strip(b",.}").replace(b".", b"").isdigit())

    assert quick.returncode == typers.returncode
    assert (gist(quick.stdout), gist(quick.stderr)) == (gist(typers.stdout), gist(typers.stderr))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-such-option"], "No such option: --no-such-option"),
        (["nonsense"], "No such command 'nonsense'"),
        (["prof"], "Did you mean 'profile'"),
        (["run"], "Missing argument"),
        (["run", "--on"], "--on"),
        (["run", "--timeout", "soon", "true"], "'soon' is not a duration"),
        (["run", "--env", "NOWHERE_AT_ALL", "true"], "NOWHERE_AT_ALL"),
        (["run", "--env", "A-B=1", "true"], "A-B"),
        (["run", "--on", "nowhere", "true"], "no profile and no kind of target is called 'nowhere'"),
        (["run", "--limit", "ram=1", "true"], "'ram=1' is not a limit"),
        (["run", "--detach", "--pty", "true"], "--pty has no effect with --detach"),
        (["logs"], "Missing argument"),
        (["logs", "nosuch"], "there is no job 'nosuch'"),
        (["logs", "x", "--stream", "both-of-them"], "both"),
        (["kill", "nosuch"], "there is no job 'nosuch'"),
        (["cp", "a"], "cp needs a source and a destination"),
        (["cp", "a", "b"], "all paths are local"),
        (["sync", "a", "b"], "sync needs one local path and one TARGET:PATH"),
        (["forward", "http"], "'http' is not a port"),
        (["forward", "8080=0"], "port 0"),
        (["log", "--since", "once"], "'once' is not a time"),
        (["logs", "x", "--since", "9999-01-01"], "is in the future"),
        (["log", "--grep", "("], "not a regular expression"),
        (["chat", "--replay", "/dev/null"], "not a regular file"),
        (["bench", "-n", "0"], "Try: hermes-exec bench --help"),
        (["profile", "trust"], "no hermes.toml in this folder"),
        (["profile", "show", "nowhere"], "nowhere"),
        (["doctor", "nowhere"], "nowhere"),
        (["--config", "/no/such.toml", "profile", "list"], "/no/such.toml"),
        (["--log-format", "xml", "profile", "list"], "'--log-format': 'xml' is not one of 'text', 'json'"),
        (["--config", "/none/x", "run", "true"], "/none/x: "),
        (["skill", "check", "/none/x"], "/none/x: there is no such folder or archive"),
        (["skill", "add", "/none/x"], "/none/x: there is no such folder"),
        (["skill", "import", "/none/x"], "/none/x: there is no such folder or file"),
        (["skill", "check", "--policy", "/none/x.toml", "."], "/none/x.toml: "),
        (["skill", "check", "--folder", "in=/none/x", "."], "/none/x"),
        (["policy", "show", "/none/x.toml"], "/none/x.toml: "),
        (["policy", "check", "/none/x.toml"], "/none/x.toml: "),
        (["cp", "/none/x", "local:/tmp/"], "/none/x: No such file or directory (on this machine)"),
        (["cp", ".", "/none/x", "local:/tmp/"], "/none/x: No such file or directory (on this machine)"),
        (["sync", "/etc/hostname", "local:/tmp/x"], "/etc/hostname is not a folder. Try: hermes-exec cp"),
        (["sync", "/none/x", "local:/tmp/"], "/none/x: No such file or directory (on this machine)"),
        (["chat", "-q", "hi", "--replay", "/none/x"], "/none/x: "),
        (["chat", "-q", "hi", "--file", "/none/x", "--replay", "demo"], "/none/x: "),
        (["serve", "--token-from", "file:/none/x"], "/none/x: "),
        (["conversations", "export", "last", "--output", "/none/x"], "/none: there is no such folder"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_exits_2(cli: Cli, words: list[str], said: str) -> None:
    done = cli(*words)
    line = done.stderr.decode()
    assert done.returncode == 2, line
    assert done.stdout == b""
    assert line.startswith("hermes-exec: ")
    assert line.count("\n") == 1
    assert said in line


def test_without_words_there_is_help(cli: Cli) -> None:
    done = cli()
    assert done.returncode == 0
    assert done.stdout == cli("--help").stdout


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout.startswith(b"hermes-exec 0.")


@pytest.mark.parametrize("words", [["--version"], ["--debug", "--config=x", "--version"]])
def test_the_other_name_tells_it_too(words: list[str]) -> None:
    done = subprocess.run([TALK, *words], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"hermes-exec 0.")


def test_the_other_name_takes_the_options_before_the_command(cli: Cli) -> None:
    words = [str(TALK), "--config", "/none/x", "-q", "hi"]
    done = subprocess.run(words, check=False, capture_output=True, env=cli.env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"hermes-exec: /none/x: ")


def test_debug_alone_shows_a_traceback(cli: Cli) -> None:
    words = ["run", "--on", "nowhere", "true"]
    assert b"Traceback" not in cli(*words).stderr
    assert b"Traceback" in cli("--debug", *words).stderr


def test_a_fault_of_ours_is_one_line_and_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RuntimeError("two\nlines")) == 70
    told = capsys.readouterr().err
    assert told.startswith("hermes-exec: internal error: RuntimeError: two lines. Try: hermes-exec --debug")
    assert told.count("\n") == 1


def test_windows_is_told_in_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main() == 125
    assert capsys.readouterr().err == "hermes-exec: Windows is not supported. Try: run it inside WSL2\n"
