"""The channel ``mail`` of scheduled jobs: reports by SMTP, through the server of ``[mail]``.

SMTP has no number of a message by which a server would recognize it the second time. A message whose text was sent and
whose acceptance was not received may have arrived: its delivery is of unknown outcome, and is not sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import smtplib
import socket
import ssl
import threading
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import TYPE_CHECKING

from hermes_exec.config.load import load_settings
from hermes_exec.config.paths import to_printable
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import ConfigError, HermesError, OutcomeUnknown, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.quoting import flatten, quote
from hermes_exec_agent.scheduler.delivery import Channel

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import MailSettings
    from hermes_exec_agent.scheduler.outbox import Delivery

_ADDRESS = re.compile(r"(?!-)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
_LONGEST_ADDRESS = 254
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_STEP_S = 20.0
"""Seconds for each answer of the server."""
_ACCEPTED, _FORWARDED = 250, 251
_REFUSALS = range(400, 600)
_SUBJECT = 200
_REPLY = 200
_UNSAID = "the mail server did not say that it accepted the text"
_MAYBE = "unknown: the message may have arrived"
_REMEDY = "[mail] in your hermes.toml, with server and sender; docs/cron.md"


class MailChannel(Channel):
    """Sends reports as mail of plain text to one address."""

    @classmethod
    def check(cls, rest: str) -> str:
        """Return the address; the configuration has to name a server."""
        if len(rest) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(rest):
            raise UsageError(
                f"--deliver mail:{to_printable(rest)}: not a mail address", remedy="mail:me@example.org, in ASCII"
            )
        _find_settings()
        return rest

    @classmethod
    async def send(cls, rest: str, delivery: Delivery) -> None:
        """Send the report once."""
        if delivery.was_cut_off:
            raise OutcomeUnknown("a kill ended the attempt to send it", state=_MAYBE)
        attempt = _Attempt(rest, delivery)
        try:
            await asyncio.to_thread(attempt.run)
        except asyncio.CancelledError:
            if attempt.stop():
                raise OutcomeUnknown(f"{_UNSAID} in time", state=_MAYBE) from None
            raise


def _find_settings() -> MailSettings:
    """Return the settings of mail.

    Raises:
        ConfigError: there is no server, or the sender is not an address.
    """
    settings = load_settings().mail
    if settings.server is None or settings.sender is None:
        raise ConfigError("no mail server is configured", remedy=_REMEDY)
    if not _ADDRESS.fullmatch(settings.sender):
        raise ConfigError("[mail] sender is not a mail address", remedy='sender = "me@example.org"')
    return settings


def compose_mail(sender: str, receiver: str, delivery: Delivery) -> EmailMessage:
    """Return the message of a report; its number is the same for each attempt."""
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"] = sender, receiver
    mail["Subject"] = flatten(delivery.subject, _SUBJECT)
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{delivery.key}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # so that no program answers it (RFC 3834)
    text = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in delivery.body)
    mail.set_content(text, cte="quoted-printable")
    return mail


class _Attempt:
    """One attempt, in a thread of its own, which may be stopped until the text is sent."""

    def __init__(self, receiver: str, delivery: Delivery) -> None:
        self._receiver = receiver
        self._delivery = delivery
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_sending = False
        self._client: smtplib.SMTP | None = None

    def run(self) -> None:
        """Send the message.

        Raises:
            OutcomeUnknown: it may have arrived.
            HermesError: it did not.
        """
        settings = _find_settings()
        sources = {} if settings.password is None else {"password": settings.password}
        password = resolve_secrets(sources, os.environ).get("password")
        redactor = Redactor(() if password is None else (password,))
        try:
            with contextlib.closing(self._connect(settings)) as client:
                self._log_in(client, settings, password)
                self._transfer(client, settings.sender or "")
        except OutcomeUnknown:
            raise
        except smtplib.SMTPResponseException as error:
            raise HermesError(redactor.redact(f"the mail server refused: {_describe(error)}")) from None
        except ssl.SSLError as error:
            raise HermesError(
                f"the certificate of the mail server is not valid: {flatten(str(error), _REPLY)}"
            ) from None
        except (smtplib.SMTPException, OSError) as error:
            why = redactor.redact(flatten(str(error) or type(error).__name__, _REPLY))
            raise HermesError(f"the mail server cannot be used: {why}") from None

    def _connect(self, settings: MailSettings) -> smtplib.SMTP:
        host, port = settings.server or "", settings.port or _PORTS[settings.security]
        context = ssl.create_default_context()
        if settings.security == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_STEP_S, context=context)
        else:
            client = smtplib.SMTP(host, port, timeout=_STEP_S)
        with self._lock:
            self._client = client
        try:
            self._check_stopped()
            if settings.security == "starttls":
                client.starttls(context=context)
        except BaseException:
            client.close()
            raise
        return client

    def _log_in(self, client: smtplib.SMTP, settings: MailSettings, password: Secret | None) -> None:
        if settings.user is not None and password is not None:
            try:
                client.login(settings.user, password.reveal())
            except UnicodeEncodeError:  # the library sends ASCII alone
                raise ConfigError("[mail] user and password: not in ASCII", remedy="a password in ASCII") from None

    def _transfer(self, client: smtplib.SMTP, sender: str) -> None:
        mail = compose_mail(sender, self._receiver, self._delivery)
        client.ehlo_or_helo_if_needed()
        for code, reply in (client.mail(sender), client.rcpt(self._receiver)):
            if code not in (_ACCEPTED, _FORWARDED):
                raise smtplib.SMTPResponseException(code, reply)
        with self._lock:
            self._check_stopped()
            self._is_sending = True
        try:
            code, reply = client.data(mail.as_bytes())
        except smtplib.SMTPDataError:  # it was not sent, as the server takes none
            raise
        except (smtplib.SMTPException, OSError) as error:
            why = flatten(str(error) or type(error).__name__, _REPLY)
            raise OutcomeUnknown(f"{_UNSAID}: {why}", state=_MAYBE) from None
        if code in _REFUSALS:
            raise smtplib.SMTPResponseException(code, reply)
        if code != _ACCEPTED:
            raise OutcomeUnknown(f"{_UNSAID}: its answer is none of SMTP", state=_MAYBE)
        with contextlib.suppress(smtplib.SMTPException, OSError):
            client.quit()  # it has the message, whatever becomes of the connection

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise HermesError("it was stopped before the text was sent")

    def stop(self) -> bool:
        """End the attempt; return whether the text may have been sent."""
        with self._lock:
            self._is_stopped = True
            if self._client is not None and self._client.sock is not None:
                with contextlib.suppress(OSError):  # closing it would not end the wait of the thread
                    self._client.sock.shutdown(socket.SHUT_RDWR)
            return self._is_sending


def _describe(error: smtplib.SMTPResponseException) -> str:
    reply = error.smtp_error
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    return f"{error.smtp_code} {quote(text, _REPLY)}"
