"""Other users of the machine: no address and no socket gives them this user's files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from openai import OpenAI

from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.http.connections import peer_uid
from hermes_exec_agent.frontends.http.listener import serve_until_cancelled
from hermes_exec_agent.frontends.http.token_file import load_token, token_file
from hermes_exec_agent.models import ask, say
from tests.http.test_server_command import HELLO
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.cli.conftest import Cli
    from tests.http.conftest import Serve

NOBODY = 65534
CLIENT = """
import http.client, json, sys
here = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
body = json.dumps({"model": "main", "messages": [{"role": "user", "content": "read it"}]})
here.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
answer = here.getresponse()
print(answer.status, answer.read().decode())
"""
as_another_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")


def by_nobody(script: str, *words: str) -> str:
    """What a Python script prints that runs as another user."""
    argv = ["/usr/bin/env", "python3", "-I", "-c", script, *words]
    done = subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, check=False)
    return done.stdout.decode() + done.stderr.decode()


@pytest.fixture
def reachable() -> Generator[Path]:
    """A folder of its own, of which every folder above lets other users through."""
    with tempfile.TemporaryDirectory(prefix="hermes-socket-", dir="/tmp") as folder:
        yield Path(folder)


@as_another_user
def test_another_user_reads_no_file_of_the_owner_through_it(cli: Cli, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("what is written here", encoding="utf-8")
    private.chmod(0o600)
    with ScriptedEndpoint(
        [ask(("terminal", {"command": f"cat {private}"})), say("It says: what is written here")]
    ) as model:
        cli.env |= {
            "LLM_PROVIDER": "openai",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": model.url,
            "DEFAULT_MODEL": "one",
        }
        child = cli.start("serve", "--port", "0", "--json", "--on", "local", "--approve", "allow")
        told = json.loads(child.out.readline())
        at, kept = urlsplit(str(told["listening"])), Path(told["token_file"])
        said = by_nobody(CLIENT, at.hostname or "", str(at.port))
        assert said.startswith("401 ")
        assert "what is written here" not in said
        assert "PermissionError" in by_nobody("import sys; open(sys.argv[1])", str(kept))
        assert not model.requests
        with OpenAI(base_url=told["listening"], api_key=kept.read_text("ascii").strip(), max_retries=0) as owner:
            done = owner.chat.completions.create(model="main", messages=HELLO)
        assert done.choices[0].message.content == "It says: what is written here"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert kept.read_text("ascii").strip().encode() not in child.err.read()


def test_the_token_is_made_once_and_is_this_users_alone(cli: Cli) -> None:
    tokens: set[str] = set()
    kept = token_file(cli.env)
    for _ in range(2):
        child = cli.start("serve", "--port", "0", "--json")
        assert json.loads(child.out.readline())["token_file"] == str(kept)
        tokens.add(kept.read_text("ascii"))
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    (token,) = tokens
    assert len(token.strip()) == 64
    kept.chmod(0o644)
    done = cli("serve", "--port", "0")
    assert done.returncode == 2
    assert b"other users may have read or created it (mode 0644)" in done.stderr
    assert token.strip().encode() not in done.stderr


def test_servers_that_begin_at_once_share_a_token(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "state" / "serve-token"
    with ThreadPoolExecutor(8) as threads:
        tokens = {each.reveal() for each in threads.map(load_token, [path] * 32)}
    assert len(tokens) == 1
    assert [each.name for each in path.parent.iterdir()] == ["serve-token"]
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ConfigError, match="the token cannot be stored"):
        load_token(tmp_path / "link")


def test_at_a_socket_of_ones_own_no_token_is_needed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "own" / "serve.sock"
    child = cli.start("serve", "--json", "--socket", str(path))
    assert json.loads(child.out.readline()) == {"listening": f"unix:{path}"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with closing(socket.socket(socket.AF_UNIX)) as here:
        here.connect(str(path))
        here.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in here.recv(4096)
    again = cli("serve", "--socket", str(path))
    assert (again.returncode, b"a server is already listening on it" in again.stderr) == (2, True)
    child.kill()  # its socket stays behind
    child.wait(60)
    child = cli.start("serve", "--json", "--socket", str(path))
    assert child.out.readline()
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert not path.exists()


@as_another_user
def test_another_user_is_turned_away_at_a_socket_that_was_opened_to_all(serve: Serve, reachable: Path) -> None:
    path = reachable / "serve.sock"
    serve(say("Never."), token=None, at=path)
    path.chmod(0o777)
    reachable.chmod(0o755)
    script = (
        "import socket, sys\nhere = socket.socket(socket.AF_UNIX)\nhere.connect(sys.argv[1])\n"
        "here.sendall(b'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\nprint(here.recv(99))"
    )
    said = by_nobody(script, str(path))
    assert "200" not in said
    assert "b''" in said or "ConnectionResetError" in said or "BrokenPipeError" in said


@pytest.mark.parametrize(
    ("words", "mode", "said"),
    [
        (["--socket", "open/s"], 0o755, "other users have access (mode 0755)"),
        (["--socket", "open/s", "--port", "1"], 0o700, "--socket excludes --host and --port"),
        (["--socket", "open/" + "s" * 200], 0o700, "too long"),
        (["--socket", "open"], 0o700, "other users have access"),
        (["--socket", "/proc/none/s"], 0o700, "/proc/none: No such file or directory. Try: "),
    ],
)
def test_a_socket_that_others_could_reach_is_refused(cli: Cli, words: list[str], mode: int, said: str) -> None:
    cli.cwd.chmod(0o755)
    (cli.cwd / "open").mkdir(mode=0o700)
    (cli.cwd / "open").chmod(mode)
    done = cli("serve", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()


def test_an_address_without_a_token_is_not_listened_at(serve: Serve, tmp_path: Path) -> None:
    served = serve(say("Never."), token=None, at=tmp_path / "own" / "serve.sock")
    coming = serve_until_cancelled(served.server, ("127.0.0.1", 0), grace_s=0.0, listening=pytest.fail)
    with pytest.raises(ConfigError, match="an address needs a token"):
        asyncio.run(coming)


def test_the_kernel_says_whose_a_connection_is() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_uid(one) == os.geteuid()
