"""Authentication: from a connected socket to an authenticated transport. Blocks, on a thread of the loop's pool."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceError, PlaceUnavailable
from hermes_exec_backends.ssh import hostkeys
from hermes_exec_backends.ssh.keys import LONG, Keys, ask, secret
from hermes_exec_backends.ssh.packets import Packets
from hermes_exec_backends.ssh.pipelined_open import PipelinedOpen, may_hurry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import paramiko

    from hermes_exec_backends.ssh.host import Host
    from hermes_exec_backends.ssh.protocol_requests import Transport
    from hermes_exec_backends.ssh.route import Route

_log = logging.getLogger("hermes_exec.ssh")
_LOG = "hermes_exec.ssh.paramiko"
_CERTIFICATE = "-cert-v01@openssh.com"
_INTERACTIVE = "keyboard-interactive"


class NeedsPerson(PlaceError):
    """The error for a login that needs interactive answers while no user is present."""


def log_in(transport: Transport, host: Host, way: Route, *, interactive: bool, early: bool) -> PipelinedOpen | None:
    """Exchange keys, verify the host's, and log in; with ``early`` return a session if it could be requested meanwhile.

    Raises:
        PlaceUnavailable: a step failed; the error names the step and the reason.
        NeedsPerson: the host asks a question that no secret answers, and ``interactive`` is false.
    """
    hostkeys.check(host, _handshake(transport, host, way))
    transport.auth_timeout = host.connect_timeout_s if not interactive else 300.0
    login = Login(transport, host, interactive=interactive, early=early)
    login.run()
    return login.early


def _handshake(transport: Transport, host: Host, way: Route) -> paramiko.PKey:
    from paramiko import SSHException

    logger = logging.getLogger(_LOG)
    if not logging.getLogger("hermes_exec").isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL)  # errors are raised; printing them too is redundant
    transport.set_log_channel(_LOG)
    transport.banner_timeout = transport.handshake_timeout = host.connect_timeout_s
    transport.use_compression(host.compression)
    options = transport.get_security_options()
    options.ciphers = sorted(options.ciphers, key=lambda name: "gcm" not in name)  # see packets.py
    options.key_types = _list_key_types(host, options.key_types)
    try:
        transport.start_client(timeout=host.connect_timeout_s)
        if isinstance(transport.packetizer, Packets) and transport.packetizer.opens:
            transport.packetizer.adopt(transport, hasty=may_hurry(transport))
        return transport.get_remote_server_key()
    except (SSHException, EOFError, OSError) as error:
        said = way.said()
        reason = LONG.sub(" ", str(error)).strip() or "the connection was closed"
        raise PlaceUnavailable(
            f"ssh: {host} answered, but is not an SSH server that we can talk to: {reason}"
            + (f" ({said})" if said else ""),
            remedy="check the port, and whether the server refuses this address or is too busy",
        ) from error


def _list_key_types(host: Host, kinds: Sequence[str]) -> list[str]:
    """Return the host key types, best first: with a certificate if an authority is known, else the known types."""
    if hostkeys.wants_certificate(host):
        return [*(f"{kind}{_CERTIFICATE}" for kind in kinds), *kinds]
    known = hostkeys.list_known_types(host)
    return sorted(kinds, key=lambda kind: kind not in known and not (kind.startswith("rsa-") and "ssh-rsa" in known))


class Login:
    """The login methods that the host allows, tried in the order of ssh, with a record of the attempts."""

    def __init__(self, transport: Transport, host: Host, *, interactive: bool, early: bool) -> None:
        self.early: PipelinedOpen | None = None
        """A session that is requested with the first key."""
        self._transport = transport
        self._hurry = early and may_hurry(transport)
        self._host = host
        self._interactive = interactive and sys.stdin is not None and sys.stdin.isatty()
        self._allowed: set[str] | None = None
        self._tried: list[str] = []
        self._unanswered: list[str] = []
        self._keys = Keys(host, self._tried, interactive=self._interactive)

    def run(self) -> None:
        """Log in, or raise; see ``log_in``."""
        from paramiko import AuthenticationException, SSHException

        try:
            for key, name in self._keys.in_order():
                if self._try(f"publickey ({name})", "publickey", partial(self._publickey, key)):
                    return
            if self._host.password and self._try("password", "password", self._password):
                return
            if self._try(_INTERACTIVE, _INTERACTIVE, self._questions):
                return
            if not self._tried and self._try("none", "none", lambda: self._transport.auth_none(self._host.user)):
                return
        except AuthenticationException as error:  # the transport is closed: most often after too many attempts
            raise self._build_refusal(str(error)) from error
        except (SSHException, EOFError, OSError) as error:
            raise self._build_refusal(f"the host closed the connection ({error})") from error
        finally:
            self._keys.close()
        raise self._build_refusal("")

    def _try(self, name: str, kind: str, call: Callable[[], list[str]]) -> bool:
        """Return true when logged in; false when the host wants another method, or a further one."""
        from paramiko import AuthenticationException, BadAuthenticationType

        if self._allowed is not None and kind not in self._allowed and kind != "none":
            return False
        try:
            more = call()
        except BadAuthenticationType as error:
            self._allowed = set(error.allowed_types)
        except AuthenticationException:
            if not self._transport.is_active():
                raise
        else:
            if not more:
                return True
            name = f"{name}, accepted, and {' or '.join(more)} is wanted besides"
            self._allowed = set(more)
        self._tried.append(name)
        return False

    def _publickey(self, key: paramiko.PKey) -> list[str]:
        if self._hurry and self.early is None:
            self.early = PipelinedOpen(self._transport, self._transport.auth_timeout)
        return self._transport.auth_publickey(self._host.user, key)

    def _password(self) -> list[str]:
        return self._transport.auth_password(self._host.user, secret(self._host.password, "password"))

    def _questions(self) -> list[str]:
        return self._transport.auth_interactive(self._host.user, self._answers)

    def _answers(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """Answer the host's questions. On paramiko's thread."""
        answers: list[str] = []
        for prompt, shown in prompts:
            if self._host.password and not shown and "password" in prompt.lower() and not self._unanswered:
                answers.append(secret(self._host.password, "password"))
            elif self._interactive:
                answers.append(ask("\n".join(filter(None, (title, instructions, prompt))), shown=shown))
            else:
                self._unanswered.append(prompt.strip())
                answers.append("")
        return answers

    def _build_refusal(self, why: str) -> PlaceError:
        tried = "; ".join(self._tried) or "nothing"
        text = f"ssh: {self._host} refused the login: {why + '; ' if why else ''}tried {tried}"
        if self._allowed:
            text += f"; it takes {', '.join(sorted(self._allowed))}"
        if self._unanswered:
            return NeedsPerson(
                f"{text}; no person was there to answer {self._unanswered[0]!r}",
                remedy="open it from a terminal, or use transport = 'openssh' with a connection that ssh keeps",
            )
        return PlaceUnavailable(text, remedy="name the right user and key_path, or load the key into the agent")
