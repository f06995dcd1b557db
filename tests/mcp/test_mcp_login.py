"""Logins by OAuth at an authorization server over the wire, and the keys that they leave."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.backends.null import Keyring as NullKeyring
from keyring.errors import KeyringLocked
from keyrings.alt.file import PlaintextKeyring

from hermes_exec.config.settings import McpSettings
from hermes_exec.errors import ConfigError, PlaceUnavailable, UsageError
from hermes_exec_agent.mcp.login import log_in, login_file, read_login, remove_login, write_login
from hermes_exec_agent.mcp.login_page import open_login_page
from tests.rigs.bounded import until
from tests.rigs.oauth_server import RIGHT, open_protected_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from tests.cli.conftest import Cli
    from tests.mcp.conftest import Talking

    Run = Callable[[Awaitable[Any]], Any]


async def log_in_with_browser(settings: McpSettings, environ: Mapping[str, str], scope: str = "") -> bool:
    """Log in as a person does, whose browser follows the redirects."""
    browsing: list[asyncio.Task[None]] = []

    async def browse(address: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            await browser.get(address)

    async def show(address: str) -> None:
        page.expect(address)
        browsing.append(asyncio.create_task(browse(address)))

    async with open_login_page() as page:
        done = await log_in(
            "far", settings, environ, redirect=page.redirect, show=show, receive=page.receive, scope=scope
        )
        await asyncio.gather(*browsing)
        return done


def settings_of(url: str, **fields: Any) -> McpSettings:
    return McpSettings.model_validate({"url": url, "tools": ["*"], "approval": "allow", **fields})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_server_is_used_after_a_login_and_its_keys_are_for_this_user_alone(
    run: Run, talking: Talking, environ: dict[str, str]
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            async with talking(far=settings_of(url)) as talk:
                await until(lambda: talk.connection.reason)
                assert "HTTP status 401" in talk.connection.reason
            assert authority.clients == {}  # a conversation begins no login
            assert await log_in_with_browser(settings_of(url), environ)
            file = login_file("far", environ)
            assert file.stat().st_mode & 0o777 == 0o600
            (client,) = authority.clients.values()
            login = read_login("far", environ)
            assert login is not None
            assert (login.client.client_id, login.client.issuer) == (client.client_id, url.removesuffix("mcp"))
            async with talking(far=settings_of(url)) as talk:
                assert (await talk.call("whoami", server="far"))["output"] == "the person"

    run(use())


def test_old_keys_are_renewed_once_and_the_new_ones_are_kept(
    run: Run, talking: Talking, environ: dict[str, str]
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            await log_in_with_browser(settings_of(url), environ)
            before = read_login("far", environ)
            assert before is not None
            write_login("far", before.model_copy(update={"expires_at": 1.0}), environ)
            async with talking(far=settings_of(url)) as talk:
                assert (await talk.call("whoami", server="far"))["output"] == "the person"
            after = read_login("far", environ)
            assert after is not None
            assert before.tokens.refresh_token != after.tokens.refresh_token
            assert authority.refreshed == 1

    run(use())


def test_keys_that_are_renewed_during_a_logout_do_not_come_back(
    run: Run, talking: Talking, environ: dict[str, str]
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            await log_in_with_browser(settings_of(url), environ)
            before = read_login("far", environ)
            assert before is not None
            write_login("far", before.model_copy(update={"expires_at": 1.0}), environ)

            async def log_out() -> None:
                assert await asyncio.to_thread(remove_login, "far", environ)

            authority.before_refresh = log_out  # the request for new keys is under way
            async with talking(far=settings_of(url)) as talk:
                await until(lambda: talk.connection.reason)
                assert "HTTP status 401" in talk.connection.reason
            assert authority.refreshed == 1
            assert read_login("far", environ) is None

    run(use())


def test_keys_that_are_no_longer_valid_name_the_command_and_begin_no_login(
    run: Run, talking: Talking, environ: dict[str, str]
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            await log_in_with_browser(settings_of(url), environ)
            authority.tokens.clear()
            authority.refreshes.clear()
            async with talking(far=settings_of(url)) as talk:
                await until(lambda: talk.connection.reason)
                assert "hermes-exec mcp login far" in talk.connection.reason
            assert len(authority.clients) == 1

    run(use())


def test_a_call_that_lacks_a_right_names_the_command_that_asks_for_it_and_is_not_sent_again(
    run: Run, talking: Talking, environ: dict[str, str]
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            await log_in_with_browser(settings_of(url), environ)
            async with talking(far=settings_of(url)) as talk:
                failed = await talk.call("change", server="far")
                assert failed["error"]["type"] == "further_rights"
                assert f"change of the MCP server far needs further rights: {RIGHT}" in failed["error"]["message"]
                assert f"hermes-exec mcp login far --scope {RIGHT}" in json.dumps(failed)
                assert (authority.refused, len(authority.clients)) == (1, 1)
            await log_in_with_browser(settings_of(url), environ, RIGHT)
            async with talking(far=settings_of(url)) as talk:
                assert (await talk.call("change", server="far"))["output"] == "changed"
            await log_in_with_browser(settings_of(url), environ)  # asks for the rights of the login before, too
            login = read_login("far", environ)
            assert login is not None
            assert RIGHT in (login.tokens.scope or "").split()
            authority.tokens = {key: token.model_copy(update={"scopes": []}) for key, token in authority.tokens.items()}
            authority.scope = "$(reboot) \u202e"
            async with talking(far=settings_of(url)) as talk:
                failed = await talk.call("change", server="far")
                assert "reboot" not in json.dumps(failed)
                assert "hermes-exec mcp login far" in json.dumps(failed)

    run(use())


def test_an_answer_of_another_issuer_is_refused(run: Run, environ: dict[str, str]) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            authority.issuer = "https://other.example/"
            with pytest.raises(PlaceUnavailable, match="far failed"):
                await log_in_with_browser(settings_of(url), environ)
            assert authority.tokens == {}
        assert not login_file("far", environ).exists()

    run(use())


def test_a_person_who_refuses_is_not_logged_in(run: Run, environ: dict[str, str]) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, authority):
            authority.says = False
            with pytest.raises(PlaceUnavailable, match='the login was refused: "access_denied"'):
                await log_in_with_browser(settings_of(url), environ)

    run(use())


@pytest.mark.parametrize("fields", [{"url": "http://example.org/mcp"}, {"command": "true"}])
def test_a_login_needs_https_or_this_machine(run: Run, environ: dict[str, str], fields: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="which a login needs"):
        run(log_in_with_browser(McpSettings.model_validate(fields), environ))


def test_keys_are_sent_to_the_address_of_their_login_alone(run: Run, talking: Talking, environ: dict[str, str]) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, _), open_protected_server() as (other, authority):
            await log_in_with_browser(settings_of(url), environ)
            async with talking(far=settings_of(other)) as talk:
                await until(lambda: talk.connection.reason)
                assert "HTTP status 401" in talk.connection.reason
            assert authority.clients == {}

    run(use())


def test_the_command_prints_the_address_and_removes_the_keys_with_the_server(run: Run, cli: Cli) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, _):
            cli.configure(f'[mcp.far]\nurl = "{url}"\ntools = ["*"]\n')
            child = cli.start("mcp", "login", "far", "--no-browser", stdin=subprocess.DEVNULL)
            line = (await asyncio.to_thread(child.err.readline)).decode()
            address = re.search(r"open (\S+)", line)
            assert address
            async with httpx2.AsyncClient(follow_redirects=True) as browser:
                assert "The login goes on" in (await browser.get(address[1])).text
            assert await asyncio.to_thread(child.wait, 30) == 0
            keys = Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec/mcp/far.login.json"
            assert json.loads(keys.read_text())["url"] == url
            tested = await asyncio.to_thread(cli, "mcp", "test", "far")
            assert tested.returncode == 0, tested.stderr
            assert b"whoami" in tested.stdout
            assert (await asyncio.to_thread(cli, "mcp", "logout", "far")).returncode == 0
            assert not keys.exists()
            out = await asyncio.to_thread(cli, "mcp", "logout", "far")
            assert out.returncode == 0, out.stderr
            assert b"there is no login at far" in out.stderr
            assert b"far" in (await asyncio.to_thread(cli, "mcp", "list")).stdout
            keys.write_text("{}")
            removed = await asyncio.to_thread(cli, "mcp", "remove", "far")
            assert removed.returncode == 0, removed.stderr
            assert not keys.exists()
            assert (await asyncio.to_thread(cli, "mcp", "logout", "far")).returncode == 2

    run(use())


def test_a_page_that_does_not_know_the_login_neither_ends_nor_answers_it(run: Run) -> None:
    async def use() -> None:
        async with open_login_page() as page, httpx2.AsyncClient() as browser:
            page.expect("https://example.org/authorize?client_id=1&state=right")
            for query in ("error=access_denied", "code=theirs", "code=theirs&state=wrong", "code=theirs&state=%ff"):
                assert (await browser.get(f"{page.redirect}?{query}")).status_code == 400
            assert (await browser.get(f"{page.redirect}?code=mine&state=right")).status_code == 200
            assert (await page.receive()).code == "mine"
            assert (await browser.get(f"{page.redirect}?code=theirs&state=right")).status_code == 400

    run(use())


class Locked(KeyringBackend):
    """A keyring of a desktop whose person is not there."""

    priority = 5.0  # pyright: ignore[reportAssignmentType]  as the library's own keyrings do

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked

    def delete_password(self, service: str, username: str) -> None:
        raise KeyringLocked


class Desktop(PlaintextKeyring):
    """A keyring that counts as one that protects what it keeps."""

    priority = 5.0  # pyright: ignore[reportAssignmentType]  as the library's own keyrings do


@pytest.fixture(autouse=True)
def use_keyring(tmp_path: Path) -> Iterator[Callable[[type[KeyringBackend]], None]]:
    """Let the package use one of its backends, at first none; those with a file keep it in the folder of the test."""
    before = keyring.get_keyring()

    def use(kind: type[Any]) -> None:
        backend = kind()
        if isinstance(backend, PlaintextKeyring):
            backend.file_path = str(tmp_path / "keyring/file.cfg")
        keyring.set_keyring(backend)

    use(NoKeyring)
    yield use
    keyring.set_keyring(before)


def test_keys_are_in_the_keyring_if_there_is_one_and_else_in_a_file(
    run: Run,
    talking: Talking,
    environ: dict[str, str],
    use_keyring: Callable[[type[KeyringBackend]], None],
    tmp_path: Path,
) -> None:
    async def use() -> None:
        async with open_protected_server() as (url, _):
            for poor in (NoKeyring, NullKeyring, PlaintextKeyring):
                use_keyring(poor)
                assert await log_in_with_browser(settings_of(url), environ)
                assert login_file("far", environ).stat().st_mode & 0o777 == 0o600
            use_keyring(Desktop)
            assert await log_in_with_browser(settings_of(url), environ)
            assert not login_file("far", environ).exists()  # no second copy stays
            async with talking(far=settings_of(url)) as talk:
                assert (await talk.call("whoami", server="far"))["output"] == "the person"
            kept = (tmp_path / "keyring/file.cfg").read_text()
            assert "hermes" in kept
            assert remove_login("far", environ)
            assert (read_login("far", environ), remove_login("far", environ)) == (None, False)

    run(use())


def test_a_locked_keyring_stops_no_server_and_keeps_no_secret_unseen(
    run: Run, talking: Talking, environ: dict[str, str], use_keyring: Callable[[type[KeyringBackend]], None]
) -> None:
    use_keyring(Locked)

    async def use() -> None:
        async with open_protected_server() as (url, _):
            assert await log_in_with_browser(settings_of(url), environ)
            async with talking(far=settings_of(url)) as talk:
                assert (await talk.call("whoami", server="far"))["output"] == "the person"
            with pytest.raises(ConfigError, match="still in the keyring: KeyringLocked"):
                remove_login("far", environ)
            async with talking(far=settings_of(url)) as talk:
                await until(lambda: talk.connection.reason)
                assert "HTTP status 401" in talk.connection.reason

    run(use())
