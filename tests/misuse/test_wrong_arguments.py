"""A wrong argument raises UsageError, which names the parameter and suggests what to write; nothing ran."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
import hermes_exec.sync
from hermes_exec import Limits, Orchestrator, Pool, UsageError
from hermes_exec._arguments import check_call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "sk-not-to-be-shown"
BASIC: dict[str, Any] = {"target": "local", "audit": False}
OPENING: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"target": 3}, "target: "),
    "cwd": ({"cwd": 3}, "cwd: "),
    "env": ({"env": 3}, "env: "),
    "env-value": ({"env": {"A": 1}}, "env: the value of 'A'"),
    "max_output": ({"max_output": True}, "max_output="),
    "lease_s": ({"lease_s": "soon"}, "lease_s="),
    "carrier": ({"carrier": "pigeon"}, "carrier="),
    "audit": ({"audit": "yes"}, "audit="),
    "keyword": ({"timeout": 3}, "there is no parameter 'timeout'"),
    "no-folder": ({"cwd": "/no/such/folder"}, "cwd: /no/such/folder: no such folder"),
    "a-file": ({"cwd": "/etc/passwd"}, "cwd: /etc/passwd: not a folder"),
}
Call = Callable[[Any], Any]
CALLS: dict[str, tuple[Call, str]] = {
    "run-keyword": (lambda it: it.run("true", timeot=3), "there is no parameter 'timeot'. Try: timeout"),
    "run-nothing": (lambda it: it.run(), "'command'"),
    "run-two": (lambda it: it.run("echo", "hi"), "too many positional arguments"),
    "run-timeout": (lambda it: it.run("true", timeout="soon"), "timeout='soon'"),
    "run-timeout-bool": (lambda it: it.run("true", timeout=True), "timeout=True"),
    "run-check": (lambda it: it.run("false", check="no"), "check='no'"),
    "run-merge": (lambda it: it.run("true", merge_stderr=1), "merge_stderr=1"),
    "run-limits": (lambda it: it.run("true", limits={"memory_mib": 3}), "limits: a dict"),
    "run-cwd": (lambda it: it.run("true", cwd=3), "cwd: an int"),
    "run-stdin": (lambda it: it.run("true", stdin=3), "stdin: an int"),
    "run-command": (lambda it: it.run({"a": 1}), "command: a dict"),
    "run-grace": (lambda it: it.run("true", grace_s=-1), "grace_s=-1"),
    "stream-keyword": (lambda it: it.stream("true", timeot=3), "there is no parameter 'timeot'"),
    "session-keyword": (lambda it: it.session(shel="sh"), "there is no parameter 'shel'. Try: shell"),
    "session-name": (lambda it: it.session(3), "name: an int"),
    "start-cap": (lambda it: it.start("true", cap_s="soon"), "cap_s='soon'"),
    "start-keyword": (lambda it: it.start("true", nam="x"), "there is no parameter 'nam'. Try: name"),
    "start-name": (lambda it: it.start("true", name=3), "name: an int"),
    "start-keep": (lambda it: it.start("true", keep="no"), "keep='no'"),
    "read-path": (lambda it: it.read(3), "path: "),
    "write-text": (lambda it: it.write("/tmp/never-written", "text"), "data: a str is not bytes"),
    "upload-keyword": (lambda it: it.upload("/etc/passwd", "/tmp/never", verif=True), "'verif'. Try: verify"),
    "list-keyword": (lambda it: it.files.list(pth="/"), "there is no parameter 'pth'. Try: path"),
    "pty-rows": (lambda it: it.pty(rows="many"), "rows='many'"),
    "forward-nothing": (lambda it: it.forward(8080), "'to'"),
    "forward-address": (lambda it: it.forward(0, None), "to: "),
    "forward-reverse": (lambda it: it.forward(0, 22, reverse="no"), "reverse='no'"),
    "start-command": (lambda it: it.start(None), "command: None"),
    "start-argument": (lambda it: it.start(["echo", 3]), "command: an int"),
    "start-cwd": (lambda it: it.start("true", cwd=3), "cwd: an int"),
    "start-folder": (lambda it: it.start("true", cwd="/no/such/folder"), "cwd: /no/such/folder: "),
    "pty-command": (lambda it: it.pty(3), "command: an int"),
    "pty-name": (lambda it: it.pty("true", name=3), "name: an int"),
    "chmod-negative": (lambda it: it.files.chmod("/tmp/never-changed", -1), "mode=-1"),
    "chmod-text": (lambda it: it.files.chmod("/tmp/never-changed", "644"), "mode='644'"),
    "write-mode": (lambda it: it.files.write("/tmp/never-written", b"", mode=-4), "mode=-4"),
    "write-append": (lambda it: it.files.write("/tmp/never-written", b"", append="no"), "append='no'"),
    "mkdir-parents": (lambda it: it.files.mkdir("/tmp/never-made", parents="no"), "parents='no'"),
    "remove-recursive": (lambda it: it.files.remove("/tmp/never-there", recursive="no"), "recursive='no'"),
    "stat-follow": (lambda it: it.files.stat("/", follow="no"), "follow='no'"),
    "read-range": (lambda it: it.files.read("/etc/passwd", "x"), "offset='x'"),
    "glob-limit": (lambda it: it.files.glob("*", limit="x"), "limit='x'"),
    "move-to": (lambda it: it.files.move("/tmp/never-there", 3), "to: "),
    "upload-local": (lambda it: it.upload(3, "/tmp/never"), "local: "),
    "upload-links": (lambda it: it.upload("/etc/passwd", "/tmp/never", links="all"), "links='all'"),
    "download-progress": (lambda it: it.download("/etc/passwd", "/tmp/never", progress=3), "progress: an int"),
    "download-verify": (lambda it: it.download("/etc/passwd", "/tmp/never", verify="no"), "verify='no'"),
    "sync-delete": (lambda it: it.sync("/tmp", "/tmp/never", delete="no"), "delete='no'"),
    "sync-direction": (lambda it: it.sync("/tmp", "/tmp/never", direction="left"), "direction='left'"),
    "sync-ignore": (lambda it: it.sync("/tmp", "/tmp/never", ignore=3), "ignore: an int"),
}


@pytest.fixture(scope="module")
def terminal() -> Iterator[hermes_exec.sync.Terminal]:
    with hermes_exec.sync.open("local", audit=False) as opened:
        yield opened


@pytest.mark.parametrize(("options", "said"), OPENING.values(), ids=OPENING)
def test_open_names_the_parameter(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        hermes_exec.sync.open(**(BASIC | options))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("options", "said"), OPENING.values(), ids=OPENING)
async def test_open_names_it_for_coroutines_too(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        await hermes_exec.open(**(BASIC | options))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_a_call_names_the_parameter(terminal: hermes_exec.sync.Terminal, call: Call, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(terminal)
    assert said in str(caught.value)
    assert terminal.run("echo in").stdout == b"in\n"


async def test_calls_of_coroutines_name_it_too() -> None:
    async with hermes_exec.open("local") as opened:
        for name, (call, said) in CALLS.items():
            with pytest.raises(UsageError) as caught:
                await call(opened)  # some raise at the call
            assert said in str(caught.value), name


@pytest.mark.parametrize("options", [{"env": {"A": [SECRET]}}, {"stdin": [SECRET]}, {"cwd": [SECRET]}])
def test_a_value_that_may_be_a_secret_is_not_repeated(
    terminal: hermes_exec.sync.Terminal, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        terminal.run("true", **options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("timeout", ["10s", "1m", "1.5", 10, 2.5])
def test_a_time_is_taken_as_the_command_line_takes_it(terminal: hermes_exec.sync.Terminal, timeout: Any) -> None:
    assert terminal.run("echo in", timeout=timeout).stdout == b"in\n"


def test_a_time_as_text_ends_the_command(terminal: hermes_exec.sync.Terminal) -> None:
    assert terminal.run("sleep 100", timeout="0.2s").timed_out


def test_a_job_takes_a_time_as_text(terminal: hermes_exec.sync.Terminal) -> None:
    ended = terminal.start("sleep 100", cap_s="0.3s")
    assert ended.wait().timed_out
    job = terminal.start("echo in", cap_s=math.inf)
    assert job.wait().ok
    ended.prune()
    job.prune()  # else the guest remains, to keep their results


def test_a_running_program_names_the_parameter(terminal: hermes_exec.sync.Terminal) -> None:
    def check(call: Call, it: Any, said: str) -> None:
        with pytest.raises(UsageError) as caught:
            call(it)
        assert said in str(caught.value)

    job = terminal.start("cat", stdin=True)
    check(lambda it: it.write(3), job, "data: an int")
    check(lambda it: it.wait("soon"), job, "timeout='soon'")
    check(lambda it: it.wait(max_output=-1), job, "max_output=-1")
    check(lambda it: it.kill("TERM"), job, "grace_s='TERM'")
    check(lambda it: list(it.logs(stream="all")), job, "stream='all'")
    check(lambda it: list(it.logs(follow="yes")), job, "follow='yes'")
    check(lambda it: list(it.logs("x")), job, "offset='x'")
    job.write("in\n")
    job.close_stdin()
    assert job.wait("10s").stdout == b"in\n"
    job.prune()
    with terminal.pty("cat") as pty:
        check(lambda it: it.write(3), pty, "data: an int")
        check(lambda it: it.resize("x", 1), pty, "rows='x'")
        check(lambda it: it.signal(3), pty, "name: an int")
        with pytest.raises(UsageError, match="/no/such/folder"):
            terminal.pty("true", cwd="/no/such/folder")
    with terminal.stream("cat", interactive=True) as stream:
        check(lambda it: it.write(None), stream, "data: None")


def test_gather_names_the_parameter_and_runs_nothing(terminal: hermes_exec.sync.Terminal, tmp_path: Path) -> None:
    wrong: Any = hermes_exec.sync.gather
    ran = tmp_path / "ran"
    for terminals, command, options, said in [
        (3, f"touch {ran}", {}, "terminals: an int"),
        (terminal, f"touch {ran}", {}, "terminals: a Terminal"),
        ([terminal, 3], f"touch {ran}", {}, "terminals: an int"),
        ([terminal], None, {}, "command: None"),
        ([terminal], f"touch {ran}", {"tiemout": 3}, "there is no parameter 'tiemout'"),
    ]:
        with pytest.raises(UsageError) as caught:
            wrong(terminals, command, **options)
        assert said in str(caught.value)
    assert not ran.exists()


def test_constructors_name_the_parameter() -> None:
    wrong: Any = {"memory": 3}
    with pytest.raises(UsageError, match=r"there is no parameter 'memory'. Try: memory_mib"):
        Limits(**wrong)
    with pytest.raises(UsageError, match="'memory'"):
        Pool(**wrong)
    with pytest.raises(UsageError, match="'memory'"):
        Orchestrator(**wrong)


def test_a_type_error_of_the_code_itself_stays_one() -> None:
    def broken(value: Any) -> Any:
        return len(value)

    with pytest.raises(TypeError, match="has no len"):
        check_call(broken)(3)
    wrong: Any = check_call(broken)
    with pytest.raises(UsageError, match="missing a required argument"):
        wrong()


def test_a_folder_of_the_target_is_looked_for_there(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with hermes_exec.sync.open("local", cwd=str(folder), audit=False) as opened:
        assert opened.run("pwd -P").stdout_text.strip() == str(folder.resolve())


def test_the_end_of_stderr_is_in_the_error(terminal: hermes_exec.sync.Terminal) -> None:
    with pytest.raises(hermes_exec.CommandFailed) as caught:
        terminal.run("(seq -f 'line %.0f' 20; printf 'bad \\033[2Jend\\n') >&2; exit 3", check=True)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(r"line 20\nbad \x1b[2Jend")
    (note,) = caught.value.__notes__
    head, *lines = note.splitlines()
    assert head == "the last lines that it wrote:"
    assert [line.strip() for line in lines] == [*(f"line {i}" for i in range(14, 21)), r"bad \x1b[2Jend"]


def test_a_long_line_is_cut(terminal: hermes_exec.sync.Terminal) -> None:
    with pytest.raises(hermes_exec.CommandFailed) as caught:
        terminal.run("head -c 100000 /dev/zero | tr '\\0' x >&2; false", check=True)
    assert len(str(caught.value)) < 500
    assert not hasattr(caught.value, "__notes__")
