"""Access to the web view over plain HTTP: links, sessions, and refusals of requests that other sites cause."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import stat
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.frontends.web.access import LINK_S, SESSION_S, SLOW_S, Access
from hermes_exec_agent.frontends.web.app import load_static
from tests.rigs.certificates import write_certificate
from tests.rigs.web_view import View

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

READS = (
    "/api/state", "/api/terminals", "/api/stream", "/api/conversations", "/api/conversations/x", "/api/skills",
    "/api/skills/x",
    "/api/approvals", "/api/cron", "/api/outbox", "/api/audit", "/api/costs",
)  # fmt: skip
WRITES = (
    "/api/session/end", "/api/link", "/api/terminals/end", "/api/skills/x/prove", "/api/approvals", "/api/resources",
)  # fmt: skip


@pytest.fixture(scope="module")
def view(machine: Cli) -> View:
    return View.start(machine)


@pytest.fixture(scope="module")
def cookie(view: View) -> str:
    return view.sign_in()


def test_a_link_opens_one_session_with_a_strict_cookie(machine: Cli) -> None:
    fresh = View.start(machine)
    secret = fresh.link.partition("#link=")[2]
    status, headers, _ = fresh.call("/api/session", {"secret": secret})
    assert status == 200
    kept = headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(kept.split("; "))
    assert fresh.call("/api/session", {"secret": secret})[0] == 403
    assert fresh.call("/api/state", cookie=kept.partition(";")[0])[0] == 200
    assert fresh.stop() == 0
    assert secret not in (fresh.child.err.read().decode())


@pytest.mark.parametrize("path", READS)
def test_nothing_is_read_without_a_session(view: View, path: str) -> None:
    assert view.call(path)[0] == 401
    assert view.call(path, cookie="hermes-web-0=9999999999.x.y")[0] == 401


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_written_without_a_session_a_header_or_an_origin(view: View, cookie: str, path: str) -> None:
    assert view.call(path, {})[0] == 401
    for change, code in (
        ({"X_Hermes_Web": None}, 403),
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": f"{view.root}.evil.test"}, 403),
        ({"Origin": f"{view.root}/x"}, 403),
        ({"Origin": f"http://x@127.0.0.1:{view.port}"}, 403),
        ({"Origin": f"https://127.0.0.1:{view.port}"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ):
        assert view.call(path, {}, cookie=cookie, **change)[0] == code, change


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/state", "/api/session"])
def test_another_host_name_is_refused_on_every_path(view: View, cookie: str, path: str) -> None:
    for host in ("evil.test", f"evil.test:{view.port}", "127.0.0.1.evil.test", "", "[::1", "127.0.0.1.", "x@127.0.0.1",
                 "127.0.0.1/x", "127.0.0.1?x", "127.0.0.1#x"):  # fmt: skip
        assert view.call(path, cookie=cookie, Host=host)[0] in {400, 421}, host
    assert view.call("/", Host=f"localhost:{view.port}")[0] == 200


def test_a_foreign_origin_is_refused_on_reads_too(view: View, cookie: str) -> None:
    assert view.call("/api/state", cookie=cookie, Origin="http://evil.test")[0] == 403
    assert view.call("/api/state", cookie=cookie, Origin=view.root)[0] == 200
    for site, status in (("same-site", 403), ("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert view.call("/api/terminals", cookie=cookie, Sec_Fetch_Site=site)[0] == status, site
        assert view.call("/", Sec_Fetch_Site=site)[0] == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/static/none", "/api/state", "/none"])
def test_every_response_has_the_headers(view: View, path: str) -> None:
    headers = view.call(path)[1]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/xterm/LICENSE", "/static/app.css/x"]
)
def test_only_the_files_of_the_page_are_served(view: View, path: str) -> None:
    assert view.call(path)[0] in {400, 404}


def test_a_socket_needs_its_own_origin_and_a_session(view: View, cookie: str) -> None:
    address = f"{view.root}/api/stream?guest=x&job=y&kind=job"

    async def connect(**headers: str) -> int:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(address, headers=headers) as socket:
                    return (await socket.receive()).type.value
            except aiohttp.WSServerHandshakeError as error:
                return error.status

    assert asyncio.run(connect(Cookie=cookie)) == 403
    assert asyncio.run(connect(Cookie=cookie, Origin="http://evil.test")) == 403
    assert asyncio.run(connect(Origin=view.root)) == 401
    assert asyncio.run(connect(Cookie=cookie, Origin=view.root)) == aiohttp.WSMsgType.TEXT.value


def test_bodies_are_bounded_objects(view: View, cookie: str) -> None:
    assert view.call("/api/approvals", b"x" * (17 << 10), cookie=cookie)[0] == 413
    for body in (b"", b"[]", b"{", b"[" * 9000, b"1", b"\xff"):
        assert view.call("/api/approvals", body, cookie=cookie)[0] == 400, body[:10]
    for wrong in (
        {},
        {"allow": "yes"},
        {"allow": True},
        {"allow": True, "job": "x", "revision": "1"},
        {"allow": True, "job": "\ud800", "revision": "1"},
        {"allow": True, "job": "1", "revision": "y"},
        {"allow": True, "run": "../x"},
    ):
        assert view.call("/api/approvals", wrong, cookie=cookie)[0] == 400, wrong


def test_a_session_that_was_ended_stays_ended_for_copies_of_its_cookie(machine: Cli) -> None:
    fresh = View.start(machine)
    first, link = fresh.sign_in(), fresh.link
    fresh.link = f"{fresh.root}/{json.loads(fresh.call('/api/link', {}, cookie=first)[2])['fragment']}"
    second = fresh.sign_in()
    assert fresh.call("/api/session/end", {}, cookie=first)[0] == 200
    assert (fresh.call("/api/state", cookie=first)[0], fresh.call("/api/state", cookie=second)[0]) == (401, 200)
    fresh.stop()
    fresh.restart()
    assert (fresh.call("/api/state", cookie=first)[0], fresh.call("/api/state", cookie=second)[0]) == (401, 200)
    fresh.stop()
    fresh.options = ("--allow-input",)  # the session was opened for a view that only shows
    fresh.restart()
    assert fresh.call("/api/state", cookie=second)[0] == 401
    assert link != fresh.link
    fresh.stop()


def test_a_link_opens_one_session_when_two_requests_race(view: View, cookie: str) -> None:
    secret = json.loads(view.call("/api/link", {}, cookie=cookie)[2])["fragment"].removeprefix("#link=")

    async def race() -> list[int]:
        headers = {"X-Hermes-Web": "1", "Origin": view.root}

        async def use(session: aiohttp.ClientSession) -> int:
            async with session.post(f"{view.root}/api/session", json={"secret": secret}, headers=headers) as response:
                return response.status

        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(*[use(session) for _ in range(8)])

    assert sorted(asyncio.run(race())) == [200] + [403] * 7


def test_strangers_slow_guesses_and_lock_no_person_out(machine: Cli) -> None:
    (machine.cwd / "token").write_text("t" * 32)
    (machine.cwd / "token").chmod(0o600)
    fresh = View.start(machine, "--token-from", "file:" + str(machine.cwd / "token"))
    assert [fresh.call("/api/session", {"secret": "x" * 43})[0] for _ in range(10)] == [403] * 10
    began = time.monotonic()
    assert fresh.call("/api/session", {"secret": fresh.link.partition("#link=")[2]})[0] == 200
    assert time.monotonic() - began < SLOW_S
    began = time.monotonic()
    assert fresh.call("/api/session", {"secret": "t" * 32})[0] == 200
    assert time.monotonic() - began >= SLOW_S
    fresh.stop()


def test_a_key_that_is_too_short_signs_nothing(machine: Cli) -> None:
    key = Path(machine.env["XDG_STATE_HOME"]) / "hermes_exec" / "web-key"
    kept = key.read_text()
    key.write_text("")
    done = machine("web", "--port", "0")
    key.write_text(kept)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"remove it" in done.stderr


def test_a_session_outlasts_a_restart_and_its_key_is_private(machine: Cli) -> None:
    fresh = View.start(machine)
    kept = fresh.sign_in()
    fresh.kill()
    fresh.restart()
    assert fresh.call("/api/state", cookie=kept)[0] == 200
    key = Path(machine.env["XDG_STATE_HOME"]) / "hermes_exec" / "web-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    fresh.stop()
    key.unlink()
    fresh.restart()
    assert fresh.call("/api/state", cookie=kept)[0] == 401
    fresh.stop()


def test_links_and_sessions_end_in_time() -> None:
    now = [1000.0]
    access = Access(Secret("K", "k" * 32), frozenset({"localhost"}), clock=lambda: now[0])
    response = web.Response()
    late, link = access.create_link(), ""
    now[0] += LINK_S + 1
    assert not asyncio.run(access.open_session(late, response))
    link = access.create_link()
    assert asyncio.run(access.open_session(link, response))
    value: str = response.cookies["hermes-web"].value

    class Asked:
        cookies = {"hermes-web": value}  # noqa: RUF012  read only

    asked: Any = Asked()
    assert access.find_session(asked)
    expiry, nonce, mac = value.split(".")
    for changed in (f"{int(expiry) + 9}.{nonce}.{mac}", f"{expiry}.x.{mac}", f"{expiry}.{nonce}.", "", "..", "1e9.x.y"):
        asked.cookies = {"hermes-web": changed}
        assert access.find_session(asked) is None, changed
    asked.cookies = {"hermes-web": value}
    now[0] += SESSION_S + 1
    assert access.find_session(asked) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--host", "0.0.0.0"], "--token-from SOURCE; --name HOST; --tls-cert"),
        (["--host", "0.0.0.0", "--token-from", "env:T", "--name", "a"], "--behind-tls"),
        (["--tls-cert", "x"], "belong together"),
        (["--server", "8080"], "it is not a URL"),
        (["--server", "http://"], "it is not a URL"),
        (["--server", "http://a:b@127.0.0.1"], "it is not a URL"),
        (["--name", ""], "it is not a host name"),
        (["--name", "https://view.test"], "it is not a host name"),
        (["--host", "a..b", "--token-from", "env:T", "--name", "a", "--behind-tls"], "a..b:0: the address is not"),
        (["--token-from", "file:/none"], "/none"),
    ],
)
def test_an_unsafe_command_line_is_refused_in_one_line(machine: Cli, words: list[str], why: str) -> None:
    done = machine("web", "--port", "0", *words, env={"T": "t" * 32})
    assert done.returncode in {2, 125}
    assert why in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_port_that_is_taken_is_named_in_one_line(machine: Cli, view: View) -> None:
    done = machine("web", "--port", str(view.port))
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert f"127.0.0.1:{view.port}: Address already in use. Try: another --port" in done.stderr.decode()


def test_an_agent_cannot_start_it(machine: Cli) -> None:
    done = machine("web", "--port", "0", env={"HERMES_EXEC_AGENT": "m"})
    assert done.returncode == 2
    assert b"for a person" in done.stderr


def test_beyond_this_machine_the_token_opens_a_secure_session(machine: Cli) -> None:
    machine.env["HERMES_EXEC_WEB_TOKEN"] = "t" * 32
    fresh = View.start(machine, "--host", "0.0.0.0", "--name", "view.test", "--behind-tls")
    del machine.env["HERMES_EXEC_WEB_TOKEN"]
    assert fresh.link.startswith("https://view.test/#link=")  # what a browser can open
    fresh.root = f"http://127.0.0.1:{fresh.port}"
    given = {"Host": "view.test", "Origin": "https://view.test"}
    assert fresh.call("/", Host="127.0.0.1")[0] == 421
    assert fresh.call("/api/session", {"secret": "t" * 32}, **given)[0] == 200
    headers = fresh.call("/api/session", {"secret": "t" * 32}, **given)[1]
    assert headers["Set-Cookie"].startswith(f"__Host-hermes-web-{fresh.port}=")
    assert "Secure" in headers["Set-Cookie"].split("; ")
    assert fresh.call("/api/session", {"secret": "t" * 31}, **given)[0] == 403
    assert fresh.call("/api/session", {"secret": "t" * 32}, Host="view.test", Origin="http://view.test")[0] == 403
    fresh.stop()


def test_a_certificate_serves_https(machine: Cli) -> None:
    certificate, key = machine.cwd / "cert.pem", machine.cwd / "key.pem"
    write_certificate(certificate, key)
    fresh = View.start(machine, "--tls-cert", str(certificate), "--tls-key", str(key))
    assert fresh.link.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    with urllib.request.urlopen(f"{fresh.root}/", context=context, timeout=60) as response:
        assert b"<title>hermes-exec</title>" in response.read()
    fresh.stop()
    key.write_text("none")
    done = machine("web", "--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr


def test_the_page_fits_its_budget_and_refers_to_nothing_else() -> None:
    static = load_static()
    first = sum(len(each.body) for name, each in static.items() if name != "xterm/xterm.mjs")
    assert first <= 400_000
    html = static["index.html"].body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|https?://", html)
    ours = [name for name in static if name.endswith(".js")]
    for name in ours:
        code = static[name].body.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code), (
            name
        )


def test_the_vendored_library_is_the_published_one() -> None:
    folder = Path(__file__).parents[2] / "agent/hermes_exec_agent/frontends/web/static/xterm"
    record = json.loads((folder / "SOURCE.json").read_text())
    from hashlib import sha256

    assert (folder / "LICENSE").read_text().count("The xterm.js authors")
    for name, digest in record["sha256"].items():
        assert sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert set(record["sha256"]) == {"xterm.mjs", "xterm.css", "LICENSE"}
