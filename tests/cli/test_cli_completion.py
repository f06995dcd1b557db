"""Completion in real shells: a line with a TAB is typed, and what the completed command does is looked at."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.cli.completion import lookup
from hermes_exec.cli.completion.engine import Word, find_completions, split_line
from hermes_exec.cli.completion.lookup import look_up
from hermes_exec.cli.completion.paths import is_free
from hermes_exec.cli.completion.scripts import SCRIPTS
from hermes_exec.config.targets import parse_target
from tests.rigs.bounded import wait_until
from tests.rigs.shells import InteractiveShell

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.conftest import Require

SHELLS = tuple(SCRIPTS)
ODD = "odd $name 'of' a;file"


@pytest.fixture
def shell(cli: Cli, require: Require) -> Generator[Callable[[str], InteractiveShell]]:
    """``shell("bash")`` has the completion script loaded."""
    with contextlib.ExitStack() as stack:

        def start(name: str) -> InteractiveShell:
            require(name, "a shell whose completion is tested")
            script = cli.cwd / f"script.{name}"
            script.write_bytes(cli("completion", name).stdout)
            started = InteractiveShell(name, cli.cwd, cli.env, script)
            stack.callback(started.close)
            return started

        yield start


@pytest.mark.parametrize("name", SHELLS)
def test_names_options_and_choices_are_completed(cli: Cli, shell: Callable[[str], InteractiveShell], name: str) -> None:
    cli.configure('[backends.sandbox-one]\ntype = "local"\n')
    here = shell(name)
    for line, key, value in (
        ("hermes-exec profile sho\tsandb\t--js\t> out", "target", "sandbox-one"),
        ("hermes-exec policy show worksp\t--json > out", "name", "workspace"),
        ("hermes-exec run --json --on=sandb\t-- true > out", "exit_code", 0),
    ):
        here.run(line)
        assert json.loads((cli.cwd / "out").read_bytes())[key] == value, line


@pytest.mark.parametrize("name", SHELLS)
def test_jobs_are_completed_by_name(cli: Cli, shell: Callable[[str], InteractiveShell], name: str) -> None:
    cli("run", "--detach", "--name", "training-run", "sleep 900")
    here = shell(name)
    for _ in range(3):  # on a loaded machine the first TABs may be too early
        here.run("hermes-exec kill trai\t--json > out")
        if (cli.cwd / "out").read_bytes():
            break
    assert [each["exit_code"] for each in json.loads((cli.cwd / "out").read_bytes())] == [None]


@pytest.mark.parametrize("name", SHELLS)
def test_paths_in_a_target_are_completed(
    cli: Cli, shell: Callable[[str], InteractiveShell], name: str, tmp_path: Path
) -> None:
    remote = tmp_path / "far"
    remote.mkdir()
    (remote / ODD).write_text("text")
    here = shell(name)
    line = f"hermes-exec cp local:{tmp_path}/fa\todd\t copied"
    for _ in range(3):  # on a loaded machine the first TABs may be too early
        here.run(line)
        if (cli.cwd / "copied").exists():
            break
    assert (cli.cwd / "copied").read_text() == "text", here.shown


@pytest.mark.parametrize("name", SHELLS)
def test_local_paths_are_completed_where_a_target_may_stand(
    cli: Cli, shell: Callable[[str], InteractiveShell], name: str, tmp_path: Path
) -> None:
    (cli.cwd / "nearby file").write_text("text")
    shell(name).run(f"hermes-exec cp near\tlocal:{tmp_path}/copied")
    assert (tmp_path / "copied").read_text() == "text"


@pytest.mark.parametrize("name", SHELLS)
def test_files_are_completed_where_nothing_else_is_known(
    cli: Cli, shell: Callable[[str], InteractiveShell], name: str
) -> None:
    (cli.cwd / "notes.txt").write_text("text")
    shell(name).run("hermes-exec run -- cat note\t> out")
    assert (cli.cwd / "out").read_text() == "text"


@pytest.mark.parametrize("name", SHELLS)
def test_hermes_cli_completes_the_options_of_chat(
    cli: Cli, shell: Callable[[str], InteractiveShell], name: str
) -> None:
    shell(name).run("hermes-cli --que\thi --repl\tdemo --approve allo\t> out")
    assert (cli.cwd / "out").read_text().strip()


def ask(cli: Cli, line: str, shell: str = "fish", program: str = "hermes-exec") -> list[str]:
    """The completions of a line, without their descriptions."""
    env = cli.env | {"_HERMES_EXEC_COMPLETE": shell, "COMP_LINE": line}
    argv = [str(Path(sys.executable).with_name(program))]
    done = subprocess.run(argv, check=False, capture_output=True, cwd=cli.cwd, env=env, timeout=60)
    assert done.stderr == b""
    return [each.partition("\t")[0] for each in done.stdout.decode().splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hermes-exec conf", ["config"]),
        ("hermes-exec help profile tr", ["trust"]),
        ("hermes-exec config log.l", ["log.level"]),
        ("hermes-exec logs --stream s", ["stdout", "stderr"]),
        ("hermes-exec chat --approve d", ["deny"]),
        ("hermes-exec run --on group:w", ["group:web"]),
        ("hermes-exec chat --model f", ["fast"]),
        ("hermes-exec run --on docker", ["docker:"]),
        ("hermes-exec conversations show la", ["last"]),
        ("hermes-exec --quiet run --json --redac", ["--redact"]),
        ("hermes-exec nonsense x", []),
        ("hermes-exec run --on 'sand", ["sandbox"]),
    ],
)
def test_what_exists_is_offered(cli: Cli, line: str, expected: list[str]) -> None:
    cli.configure(
        '[backends.sandbox]\ntype = "local"\n[groups]\nweb = ["local", "sandbox"]\n'
        '[models.fast]\nprovider = "openai"\nmodel = "x"\n'
    )
    assert ask(cli, line) == expected


def test_skills_are_offered(cli: Cli) -> None:
    cli("skill", "new", "rotate-logs", "--description", "Rotates logs, when asked to.")
    cli("skill", "import", "./rotate-logs", "--yes")
    assert ask(cli, "hermes-exec skill show rot") == ["rotate-logs"]


def test_conversations_are_offered(cli: Cli) -> None:
    cli("chat", "-q", "hi", "--replay", "demo", "--approve", "deny")
    (id,) = [each["id"] for each in cli.json("conversations", "list", "--json")]
    assert ask(cli, f"hermes-cli --resume {id[:6]}", program="hermes-cli") == [id]


def test_bash_gets_the_text_behind_its_last_break(cli: Cli) -> None:
    (cli.cwd / "a b").mkdir()
    wait_until(lambda: ask(cli, f"hermes-exec cp local:{cli.cwd}/", "bash") == [rf"{cli.cwd}/a\ b/"])
    assert ask(cli, f"hermes-exec cp 'local:{cli.cwd}/", "bash") == [f"local:{cli.cwd}/a b/"]


def test_a_name_that_could_move_the_cursor_is_not_offered(cli: Cli) -> None:
    (cli.cwd / "bad\x1b[2Jname").touch()
    (cli.cwd / "bad\nname").touch()
    (cli.cwd / "badge").touch()
    wait_until(lambda: ask(cli, f"hermes-exec cp local:{cli.cwd}/bad") == [f"local:{cli.cwd}/badge"])
    assert ask(cli, "hermes-exec cp bad") == ["badge"]


def test_completion_opens_no_target_that_it_would_create() -> None:
    free = ["local", "ssh://me@host", "docker:@web", "docker:@web+ssh://me@host"]
    costly = ["docker:alpine", "docker:alpine+ssh://me@host", "modal", "slurm", "bubblewrap"]
    assert all(is_free(parse_target(text, {})) for text in free)
    assert not any(is_free(parse_target(text, {})) for text in costly)


def test_a_late_lookup_is_not_waited_for_and_is_there_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    go = tmp_path / "go"

    def find() -> list[tuple[str, str]]:
        wait_until(go.exists)
        return [("value", "")]

    began = time.monotonic()
    assert look_up("name", 60, find) == []
    assert time.monotonic() - began < 1
    go.touch()
    wait_until(lambda: list(tmp_path.glob("hermes_exec/completion/*.json")))
    assert look_up("name", 60, list) == [("value", "")]


def test_a_fresh_value_is_not_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert look_up("name", 60, lambda: [("first", "")], limit_s=60) == [("first", "")]
    assert look_up("name", 60, lambda: [("second", "")], limit_s=60) == [("first", "")]
    assert look_up("name", 0, lambda: [("second", "")], limit_s=60) == [("second", "")]
    assert look_up("other", 60, lambda: [("third", "")], limit_s=60) == [("third", "")]


def test_a_failed_lookup_keeps_the_values_of_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def fail() -> list[tuple[str, str]]:
        raise OSError("no answer")

    assert look_up("name", 60, lambda: [("first", "")], limit_s=60) == [("first", "")]
    assert look_up("name", 0, fail, limit_s=60) == [("first", "")]


@pytest.mark.parametrize("text", ["", "[", "{}", '[["a"]]', '[["a\\u001b", ""]]', "[[1, 2]]"])
def test_a_damaged_cache_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    look_up("name", 60, lambda: [("first", "")], limit_s=60)
    (path,) = (tmp_path / "hermes_exec" / "completion").glob("*.json")
    path.write_text(text)
    assert look_up("name", 60, lambda: [("second", "")], limit_s=60) in ([], [("second", "")])


@pytest.mark.parametrize(
    ("line", "words", "quote"),
    [
        ("a b", ["a", "b"], ""),
        ("a b ", ["a", "b", ""], ""),
        ("a 'b c", ["a", "b c"], "'"),
        (r"a b\ c", ["a", "b c"], ""),
        ('a "b\\"c', ["a", 'b"c'], '"'),
        ("a '' ", ["a", "", ""], ""),
        ("", [""], ""),
    ],
)
def test_a_line_is_split_as_a_shell_does(line: str, words: list[str], quote: str) -> None:
    found: list[Word] = split_line(line)
    assert [word.text for word in found] == words
    assert found[-1].quote == quote


@pytest.mark.parametrize("name", SHELLS)
def test_installing_twice_changes_nothing_more(cli: Cli, name: str) -> None:
    start = Path(cli.env["HOME"]) / {"bash": ".bashrc", "zsh": ".zshrc", "fish": "none"}[name]
    if name != "fish":
        start.write_text("alias x=y")
    assert cli("completion", name, "--install").returncode == 0
    told: Any = cli.json("completion", name, "--install", "--json")
    assert Path(told["script"]).read_text() == SCRIPTS[name]
    if name == "fish":
        assert told["loaded_by"] is None
        assert Path(told["script"]).parent == Path(cli.env["XDG_CONFIG_HOME"]) / "fish/conf.d"
    else:
        lines = start.read_text().splitlines()
        assert (lines[0], len(lines)) == ("alias x=y", 2)
        assert told["script"] in lines[1]


def test_an_installed_script_is_loaded_by_the_shell(cli: Cli, require: Require) -> None:
    require("bash")
    cli("completion", "bash", "--install")
    argv = ["bash", "--norc", "-ic", ". ~/.bashrc; complete -p hermes-exec hermes-cli"]
    done = subprocess.run(argv, check=True, capture_output=True, env=cli.env)
    assert done.stdout.count(b"_hermes_exec_completion") == 2


def test_a_plain_parameter_completes_files() -> None:
    assert find_completions(["run", "--"], "x") is None
    assert find_completions(["logs", "--bytes"], "") is None
    assert lookup.LIMIT_S == 0.3


def is_offered(cli: Cli, line: str, value: str) -> bool:
    """Whether a line has this completion alone."""
    return ask(cli, line) == [value]


@pytest.fixture
def engine(cli: Cli, tmp_path: Path) -> Generator[None]:
    """An engine on a unix socket, with two running containers."""
    path = str(tmp_path / "engine.sock")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found: Any = {"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "27.0"}
            if "/containers/json" in self.path:
                found = [{"Id": "1", "Names": ["/web-one"]}, {"Id": "2", "Names": ["/base"]}]
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "a unix socket"

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingMixIn, UnixStreamServer):
        daemon_threads = True

    with Server(path, Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cli.env["DOCKER_HOST"] = f"unix://{path}"
        yield
        server.shutdown()


@pytest.mark.parametrize("name", SHELLS)
def test_hosts_and_containers_are_completed(
    cli: Cli, shell: Callable[[str], InteractiveShell], name: str, engine: None
) -> None:
    config = Path(cli.env["HOME"]) / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    config.write_text("Host gpu-large bastion *.example\n  User me\n")
    here = shell(name)
    for typed, target in (
        ("ssh://gpu\t", "ssh://gpu-large"),
        ("ssh://me@gpu\t", "ssh://me@gpu-large"),
        ("docker:@web\t", "docker:@web-one"),
        ("docker:@web-one+ssh://bas\t", "docker:@web-one+ssh://bastion"),
    ):
        wait_until(  # the first TAB may be too early: it imports the SDK
            partial(is_offered, cli, f"hermes-exec run --on {typed[:-1]}", target)
        )
        here.run(f"hermes-exec profile show {typed}--json > out")
        assert json.loads((cli.cwd / "out").read_bytes())["target"] == target, here.shown


def test_a_path_in_a_target_is_one_lookup(cli: Cli) -> None:
    lookups = Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec" / "completion"
    assert ask(cli, f"hermes-exec cp local:{cli.cwd}/none") == []
    wait_until(lambda: list(lookups.glob("*.json")))
    assert len(list(lookups.glob("*.json"))) == 1


def test_a_path_in_a_host_begins_with_the_host(cli: Cli) -> None:
    config = Path(cli.env["HOME"]) / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    config.write_text("Host gpu-large\n")
    wait_until(lambda: ask(cli, "hermes-exec cp ssh://gp") == ["ssh://gpu-large:"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hermes-exec cron add --model f", ["fast"]),
        ("hermes-exec mcp remove fi", ["files"]),
        ("hermes-exec batch run --on sand", ["sandbox"]),
        ("hermes-exec skill check --policy skill-v", ["skill-validate"]),
        ("hermes-exec demo --on sand", ["sandbox"]),
        ("hermes-exec top --on sand", ["sandbox"]),
        ("hermes-exec doctor --a", ["--all"]),
    ],
)
def test_names_of_every_kind_are_offered(cli: Cli, line: str, expected: list[str]) -> None:
    cli.configure(
        '[backends.sandbox]\ntype = "local"\n[models.fast]\nprovider = "openai"\nmodel = "x"\n'
        '[mcp.files]\ncommand = "true"\n'
    )
    assert ask(cli, line) == expected


def test_cron_jobs_are_offered(cli: Cli) -> None:
    cli("cron", "add", "every 1d", "--command", "true", "--name", "nightly")
    assert cli.json("cron", "list", "--json")[0]["name"] == "nightly"
    assert ask(cli, "hermes-exec cron show nig") == ["nightly"]
