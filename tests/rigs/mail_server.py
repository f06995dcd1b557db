"""A mail server of the package aiosmtpd on loopback: what it accepts is kept, and it may refuse, hang or hang up."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from email.message import EmailMessage
    from pathlib import Path

USER, PASSWORD = "me", "a-password-of-tests"


@dataclass
class Mailbox:
    """What the server was sent, and what it does next."""

    messages: list[EmailMessage] = field(default_factory=list["EmailMessage"])
    receivers: list[str] = field(default_factory=list[str])
    answers: list[str] = field(default_factory=list[str])
    """Its next answers to a text: a line of SMTP, ``hang up`` or ``hang``; then it accepts each."""
    logins: list[bool] = field(default_factory=list[bool])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  its name
        self.messages.append(message_from_bytes(cast("bytes", envelope.content), policy=policy.default))
        self.receivers += envelope.rcpt_tos
        self.arrived.set()
        answer = self.answers.pop(0) if self.answers else "250 OK"
        if answer == "hang up":
            assert server.transport is not None
            server.transport.close()
        elif answer == "hang":
            await asyncio.sleep(60)
        return answer

    def log_in(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        given = cast("LoginPassword", data)
        is_right = (given.login, given.password) == (USER.encode(), PASSWORD.encode())
        self.logins.append(is_right)
        return AuthResult(success=is_right, handled=False)


@asynccontextmanager
async def open_mail_server(
    certificate: Path | None = None, key: Path | None = None, *, is_encrypted: bool = False
) -> AsyncGenerator[tuple[int, Mailbox]]:
    """Yield the port and the mailbox.

    With a certificate the server demands STARTTLS and a login, or it is encrypted from the beginning of a connection.
    """
    mailbox, loop = Mailbox(), asyncio.get_running_loop()
    options: dict[str, Any] = {}
    context: ssl.SSLContext | None = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    if context is not None and not is_encrypted:
        options["tls_context"], options["require_starttls"] = context, True
        options["auth_required"], options["authenticator"] = True, mailbox.log_in
    encryption = context if is_encrypted else None
    server = await loop.create_server(lambda: SMTP(mailbox, loop=loop, **options), "127.0.0.1", 0, ssl=encryption)
    try:
        yield server.sockets[0].getsockname()[1], mailbox
    finally:
        server.close()
