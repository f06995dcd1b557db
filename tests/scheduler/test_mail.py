"""Reports by mail through a real mail server: each arrives, is refused and tried again, or is of unknown outcome."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.files import parse_file
from hermes_exec.config.settings import Origin
from hermes_exec.errors import ConfigError, HermesError, OutcomeUnknown, UsageError
from hermes_exec_agent.scheduler import mail as module
from hermes_exec_agent.scheduler.delivery import check_addresses, send_delivery
from hermes_exec_agent.scheduler.outbox import Delivery
from hermes_exec_agent.scheduler.slots import list_deliveries, list_slots
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.scheduler.ticker import Ticker
from tests.cli.conftest import Cli, cli
from tests.rigs.certificates import write_certificate
from tests.rigs.mail_server import PASSWORD, USER, open_mail_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.scheduling import Desk

__all__ = ["cli"]
ADDRESS = "mail:you@example.org"


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the person's file: ``configure(port, security="none")``."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(port: int, **fields: str) -> None:
        keys = {"server": "127.0.0.1", "sender": "me@example.org", "security": "none", **fields}
        folder = tmp_path / "config/hermes_exec"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'{name} = "{value}"' for name, value in keys.items()]
        (folder / "hermes.toml").write_text("\n".join(["[mail]", f"port = {port}", *lines, ""]))

    return write


def letter(**fields: Any) -> Delivery:
    subject = "job: failed, 2026-11-02\r\nBcc: them@example.org"
    return Delivery(1, 1, ADDRESS, subject, "line 1\n.\n\x1b[2Jsüß\n", "0123456789abcdef", 1, **fields)


async def tick(desk: Desk, later_s: float = 0.0) -> None:
    desk.clock.at += later_s
    await asyncio.wait_for(Ticker(desk.store, desk.runs, send_delivery, clock=desk.clock).tick(), 20)


def deliveries(desk: Desk) -> list[tuple[str, int]]:
    (slot,) = (each for each in list_slots(desk.store) if each.state == "completed")
    return [(each["state"], each["attempts"]) for each in list_deliveries(desk.store, slot.id)]


def due_report(desk: Desk) -> None:
    """Let a job with a report by mail be due; its schedule has no further slot."""
    job = desk.add("at 2026-11-02T08:00")
    with desk.store.transaction() as base:
        spec = job.spec.model_copy(update={"deliver": (ADDRESS,)}).model_dump_json()
        base.execute("UPDATE jobs SET spec = ?", (spec,))
    desk.clock.set("2026-11-02T08:00")


def test_a_report_arrives_over_an_encrypted_connection_after_a_login(cli: Cli, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    write_certificate(certificate, key)
    cli.env |= {"SSL_CERT_FILE": str(certificate), "MAIL_PASSWORD": PASSWORD}

    async def use() -> None:
        async with open_mail_server(certificate, key) as (port, mailbox):
            cli.configure(
                f'[mail]\nserver = "localhost"\nport = {port}\nsender = "me@example.org"\nuser = "{USER}"\n'
                'password = "env:MAIL_PASSWORD"\n'
            )
            added = await asyncio.to_thread(
                cli,
                "cron",
                "add",
                "every 1h",
                "--command",
                "echo grüße; exit 3",
                "--name",
                "greet",
                "--deliver",
                ADDRESS,
            )
            assert added.returncode == 0, added.stderr
            done = await asyncio.to_thread(cli, "cron", "run", "greet")
            shown = await asyncio.to_thread(cli, "cron", "show", "greet")
            (mail,) = mailbox.messages
            assert mailbox.receivers == ["you@example.org"]
            assert mailbox.logins == [True]
            assert mail["From"] == "me@example.org"
            assert mail["Subject"].startswith("greet: failed, ")
            assert mail["Auto-Submitted"] == "auto-generated"
            assert mail.get_content().splitlines()[-1] == "grüße"
            assert b"delivery: mail:you@example.org delivered" in shown.stdout
            assert PASSWORD.encode() not in done.stdout + done.stderr + shown.stdout

            cli.env["MAIL_PASSWORD"] = "a-wrong-one"
            await asyncio.to_thread(cli, "cron", "run", "greet")
            shown = await asyncio.to_thread(cli, "cron", "show", "greet")
            assert (mailbox.logins[0], set(mailbox.logins[1:])) == (True, {False})  # one for each way to log in
            assert b"pending the mail server refused: 535" in shown.stdout
            cli.env["MAIL_PASSWORD"] = "ein-paßwort"
            done = await asyncio.to_thread(cli, "cron", "run", "greet")
            shown = await asyncio.to_thread(cli, "cron", "show", "greet")
            assert b"pending [mail] user and password: not in ASCII" in shown.stdout
            assert b"Traceback" not in done.stderr
            del cli.env["SSL_CERT_FILE"]
            await asyncio.to_thread(cli, "cron", "run", "greet")
            shown = await asyncio.to_thread(cli, "cron", "show", "greet")
            assert b"the certificate of the mail server is not valid" in shown.stdout
            assert len(mailbox.messages) == 1

    asyncio.run(use())


def test_a_server_may_be_encrypted_from_the_beginning(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    write_certificate(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def use() -> int:
        async with open_mail_server(certificate, key, is_encrypted=True) as (port, mailbox):
            configure(port, security="tls")
            await send_delivery(letter())
            return len(mailbox.messages)

    assert asyncio.run(use()) == 1


@pytest.mark.parametrize("answer", ["hang up", "?? what", "250"])
def test_a_text_whose_acceptance_is_not_received_is_of_unknown_outcome_and_not_sent_again(
    desk: Desk, configure: Any, answer: str
) -> None:
    async def use() -> int:
        async with open_mail_server() as (port, mailbox):
            configure(port)
            due_report(desk)
            mailbox.answers = [answer]
            await tick(desk)
            for _ in range(3):
                await tick(desk, 86400)
            return len(mailbox.messages)

    assert asyncio.run(use()) == 1
    assert deliveries(desk) == [("delivered" if answer == "250" else "unknown", 1)]


def test_a_text_that_was_refused_is_sent_again(desk: Desk, configure: Any) -> None:
    async def use() -> list[str]:
        async with open_mail_server() as (port, mailbox):
            configure(port)
            due_report(desk)
            mailbox.answers = ["451 try later"]
            await tick(desk)
            assert deliveries(desk) == [("pending", 1)]
            await tick(desk, 90)
            return [each["Message-ID"] for each in mailbox.messages]

    first, second = asyncio.run(use())
    assert first == second
    assert deliveries(desk) == [("delivered", 2)]


def test_a_report_that_a_killed_ticker_was_sending_is_not_sent_again(desk: Desk, configure: Any) -> None:
    async def use() -> None:
        async with open_mail_server() as (port, mailbox):
            configure(port)
            due_report(desk)
            mailbox.answers = ["451 try later"]
            await tick(desk)
            with desk.store.transaction() as base:
                base.execute("UPDATE deliveries SET state = 'sending', owner = 'of another time', lease = 0")
            await tick(desk, 90)
            assert len(mailbox.messages) == 1

    asyncio.run(use())
    assert deliveries(desk) == [("unknown", 2)]


def test_an_attempt_that_is_stopped_says_whether_the_text_may_have_arrived(configure: Any) -> None:
    async def use() -> None:
        async with open_mail_server() as (port, mailbox):
            configure(port)
            mailbox.answers = ["hang"]
            sending = asyncio.create_task(send_delivery(letter()))
            await asyncio.wait_for(mailbox.arrived.wait(), 20)
            sending.cancel()
            with pytest.raises(OutcomeUnknown, match="in time"):
                await sending
        stuck = await asyncio.start_server(lambda _, writer: stuck_writers.append(writer), "127.0.0.1", 0)
        configure(stuck.sockets[0].getsockname()[1])
        sending = asyncio.create_task(send_delivery(letter()))
        while not stuck_writers:
            await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        stuck_writers[0].close()
        stuck.close()

    stuck_writers: list[asyncio.StreamWriter] = []
    asyncio.run(use())


def test_a_report_forges_no_header_and_no_end_of_the_text(configure: Any) -> None:
    mail = module.compose_mail("me@example.org", "you@example.org", letter())
    assert mail["Subject"] == "job: failed, 2026-11-02 Bcc: them@example.org"
    assert "Bcc" not in mail

    async def use() -> str:
        async with open_mail_server() as (port, mailbox):
            configure(port)
            await send_delivery(letter())
            return str(mailbox.messages[0].get_content())

    assert asyncio.run(use()).splitlines() == ["line 1", ".", "?[2Jsüß"]


@pytest.mark.parametrize(
    "address", ["", "me", "a b@example.org", "a@example.org,b@example.org", "<a@example.org>", "-a@example.org",
                "ä@example.org", "a@b\r\nRCPT TO:<c@example.org>", f"{'a' * 64}@{'b.' * 120}org"],
)  # fmt: skip
def test_what_is_not_one_address_is_refused(configure: Any, address: str) -> None:
    configure(25)
    with pytest.raises(UsageError, match="not a mail address"):
        check_addresses([f"mail:{address}"])


def test_without_a_server_the_address_is_refused_and_the_file_says_what_belongs_together(
    configure: Any, tmp_path: Path
) -> None:
    configure(25)
    (tmp_path / "config/hermes_exec/hermes.toml").write_text("")
    with pytest.raises(ConfigError, match="no mail server"):
        check_addresses([ADDRESS])
    for text, says in (
        ('server = "a"', "both"),
        ('server = "a"\nsender = "b@c"\nuser = "d"', "belong together"),
        ('server = "a"\nsender = "b@c"\nuser = "d"\npassword = "env:P"\nsecurity = "none"', "encrypted"),
        ('server = "a"\nsender = "b@c"\nuser = "d"\npassword = "the-password"', "source"),
        ("port = 25", "needs"),
    ):
        with pytest.raises(ConfigError, match=says) as caught:
            parse_file(f"[mail]\n{text}\n".encode(), tmp_path / "hermes.toml", Origin("user", ""))
        assert "the-password" not in str(caught.value)
    with pytest.raises(ConfigError, match="belongs in your own file"):
        parse_file(b'[mail]\nserver = "a"\n', tmp_path / "hermes.toml", Origin("project", ""))


def test_a_port_where_nothing_listens_is_a_failure_that_is_tried_again(configure: Any) -> None:
    configure(1)
    with pytest.raises(HermesError, match="cannot be used: .*refused") as caught:
        asyncio.run(send_delivery(letter()))
    assert not isinstance(caught.value, OutcomeUnknown)


def test_a_file_of_an_earlier_version_keeps_its_deliveries_and_takes_the_new_state(desk: Desk) -> None:
    desk.add("every 1h")
    asyncio.run(desk.tick("2026-11-02T08:00"))
    desk.store.close()
    with sqlite3.connect(desk.store.path) as base:
        (created,) = base.execute("SELECT sql FROM sqlite_schema WHERE name = 'deliveries'").fetchone()
        earlier = created.replace(", 'unknown'", "")
        base.executescript(
            f"ALTER TABLE deliveries RENAME TO kept; {earlier};"
            "INSERT INTO deliveries SELECT * FROM kept; DROP TABLE kept; PRAGMA user_version = 1;"
            "CREATE INDEX deliveries_of_slots ON deliveries (slot);"
            "CREATE INDEX open_deliveries ON deliveries (due) WHERE state IN ('pending', 'sending');"
        )
    base.close()
    with CronStore(desk.store.path) as store, store.transaction() as base:
        assert [tuple(row) for row in base.execute("SELECT state, attempts FROM deliveries")] == [("delivered", 1)]
        base.execute("UPDATE deliveries SET state = 'unknown'")
        assert base.execute("PRAGMA user_version").fetchone()[0] == 2
    with sqlite3.connect(desk.store.path) as base:
        base.execute("PRAGMA user_version = 3")
    base.close()
    with CronStore(desk.store.path) as store, pytest.raises(HermesError, match="later version"), store.snapshot():
        pass
