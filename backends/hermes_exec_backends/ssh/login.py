"""From a connected socket to a transport that has logged in. Blocks: it runs on a thread of the loop's pool."""

from __future__ import annotations

import logging
import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, cast

from hermes_exec.errors import PlaceError, PlaceUnavailable
from hermes_exec_backends.ssh import hostkeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import paramiko

    from hermes_exec.config.secrets import SecretSource
    from hermes_exec_backends.ssh.agent import Agent
    from hermes_exec_backends.ssh.host import Host
    from hermes_exec_backends.ssh.reach import Way

_log = logging.getLogger("hermes_exec.ssh")
_LOG = "hermes_exec.ssh.paramiko"
_INTERACTIVE = "keyboard-interactive"
_LONG = re.compile(r"[\x00-\x1f\x7f]+")


class NeedsPerson(PlaceError):
    """Only a person can answer what the host asks, and nobody is there to be asked."""


def log_in(transport: paramiko.Transport, host: Host, way: Way, interactive: bool) -> None:  # noqa: FBT001
    """Exchange keys, check the host's, and log in.

    Raises:
        PlaceUnavailable: it did not work; says at which step, and why.
        NeedsPerson: the host asks something that no secret answers, and ``interactive`` is false.
    """
    _handshake(transport, host, way)
    key = transport.get_remote_server_key()
    hostkeys.check(host, key)
    transport.auth_timeout = host.connect_timeout_s if not interactive else 300.0
    Login(transport, host, interactive=interactive).run()


def _handshake(transport: paramiko.Transport, host: Host, way: Way) -> None:
    from paramiko import SSHException

    logger = logging.getLogger(_LOG)
    if not logging.getLogger("hermes_exec").isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL)  # what goes wrong is raised; it need not be printed as well
    transport.set_log_channel(_LOG)
    transport.banner_timeout = transport.handshake_timeout = host.connect_timeout_s
    transport.use_compression(host.compression)
    options = transport.get_security_options()
    known = hostkeys.known_types(host)
    wanted = [kind for kind in options.key_types if kind in known or (kind.startswith("rsa-") and "ssh-rsa" in known)]
    if known:
        options.key_types = (*wanted, *(kind for kind in options.key_types if kind not in wanted))
    try:
        transport.start_client(timeout=host.connect_timeout_s)
    except (SSHException, EOFError, OSError) as error:
        said = way.said()
        reason = _LONG.sub(" ", str(error)).strip() or "the connection was closed"
        raise PlaceUnavailable(
            f"ssh: {host} answered, but is no SSH server that we can talk to: {reason}"
            + (f" ({said})" if said else ""),
            remedy="check the port, and whether the server refuses this address or is too busy",
        ) from error


class Login:
    """Tries what the host allows, in the order that ssh does, and remembers what was tried."""

    def __init__(self, transport: paramiko.Transport, host: Host, *, interactive: bool) -> None:
        self._transport = transport
        self._host = host
        self._interactive = interactive and sys.stdin is not None and sys.stdin.isatty()
        self._allowed: set[str] | None = None
        self._tried: list[str] = []
        self._unanswered: list[str] = []
        self._agent: Agent | None = None

    def run(self) -> None:
        """Log in, or raise; see ``log_in``."""
        from paramiko import AuthenticationException, SSHException

        try:
            for key, name in self._keys():
                if self._try(f"publickey ({name})", "publickey", partial(self._publickey, key)):
                    return
            if self._host.password and self._try("password", "password", self._password):
                return
            if self._try(_INTERACTIVE, _INTERACTIVE, self._questions):
                return
            if not self._tried and self._try("none", "none", lambda: self._transport.auth_none(self._host.user)):
                return
        except AuthenticationException as error:  # the transport is gone: too many tries, most often
            raise self._refused(str(error)) from error
        except (SSHException, EOFError, OSError) as error:
            raise self._refused(f"the host closed the connection ({error})") from error
        finally:
            if self._agent is not None:
                self._agent.close()
        raise self._refused("")

    def _try(self, name: str, kind: str, call: Callable[[], list[str]]) -> bool:
        """True when logged in; False when the host wants something else, or more."""
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
        return self._transport.auth_publickey(self._host.user, key)

    def _password(self) -> list[str]:
        return self._transport.auth_password(self._host.user, self._secret(self._host.password, "password"))

    def _questions(self) -> list[str]:
        return self._transport.auth_interactive(self._host.user, self._answers)

    def _answers(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """Answers to the host's questions. On paramiko's thread."""
        answers: list[str] = []
        for prompt, shown in prompts:
            if self._host.password and not shown and "password" in prompt.lower() and not self._unanswered:
                answers.append(self._secret(self._host.password, "password"))
            elif self._interactive:
                answers.append(_ask("\n".join(filter(None, (title, instructions, prompt))), shown=shown))
            else:
                self._unanswered.append(prompt.strip())
                answers.append("")
        return answers

    def _secret(self, source: SecretSource | None, name: str) -> str:
        from hermes_exec.config.secrets import resolve_secrets

        return resolve_secrets({name: source}, os.environ)[name].reveal() if source else ""

    def _refused(self, why: str) -> PlaceError:
        tried = "; ".join(self._tried) or "nothing"
        text = f"ssh: {self._host} lets us not in: {why + '; ' if why else ''}tried {tried}"
        if self._allowed:
            text += f"; it takes {', '.join(sorted(self._allowed))}"
        if self._unanswered:
            return NeedsPerson(
                f"{text}; nobody was there to answer {self._unanswered[0]!r}",
                remedy="open it from a terminal, or use transport = 'openssh' with a connection that ssh keeps",
            )
        return PlaceUnavailable(text, remedy="name the right user and key_path, or load the key into the agent")

    def _keys(self) -> Iterator[tuple[paramiko.PKey, str]]:
        """Keys to try with the names to tell; files that somebody named first, as ssh does."""
        loaded = [(path, key) for path in self._host.keys if (key := self._load(path)) is not None]
        agents = self._agent_keys()
        blobs = {key.asbytes() for _, key in loaded}
        for path, key in loaded:
            for certificate in self._host.certificates:
                key.load_certificate(str(certificate))
            yield key, str(path)
        public = {line for path in self._host.keys if (line := _public(path))}
        for agents_key, comment in agents:
            if agents_key.asbytes() in blobs:
                continue
            if not self._host.keys_only or agents_key.get_base64() in public:
                yield agents_key, f"agent's {comment}".strip()

    def _agent_keys(self) -> list[tuple[paramiko.PKey, str]]:
        if not self._host.agent:
            return []
        from hermes_exec_backends.ssh.agent import Agent

        try:
            self._agent = self._agent or Agent(self._host.agent)
        except OSError as error:
            self._tried.append(str(error))
            return []
        return self._agent.keys

    def _load(self, path: Path) -> paramiko.PKey | None:
        from paramiko import PasswordRequiredException, PKey, SSHException
        from paramiko.pkey import UnknownKeyType

        try:
            data = path.read_bytes()
        except OSError as error:
            self._tried.append(f"publickey ({path}: {error.strerror})")
            return None
        encrypted = b"ENCRYPTED" in data or _has_passphrase(data)
        password: str | None = None
        if encrypted and self._host.passphrase:
            password = self._secret(self._host.passphrase, "passphrase")
        elif encrypted and self._interactive and not self._agent_has(path):
            password = _ask(f"Passphrase of {path}: ", shown=False)
        elif encrypted:
            if not self._agent_has(path):
                self._tried.append(f"publickey ({path}: it needs a passphrase, and the profile names none)")
            return None
        try:
            return PKey.from_path(path, cast("str", password.encode()) if password else None)  # bytes is what it takes
        except UnknownKeyType:
            self._tried.append(
                f"publickey ({path}: a kind of key that paramiko does not know; try transport = 'openssh')"
            )
        except PasswordRequiredException:
            self._tried.append(f"publickey ({path}: it needs a passphrase)")
        except (SSHException, ValueError, TypeError) as error:
            reason = "the passphrase is wrong" if password else _LONG.sub(" ", str(error))[:120]
            self._tried.append(f"publickey ({path}: {reason})")
        return None

    def _agent_has(self, path: Path) -> bool:
        public = _public(path)
        return any(key.get_base64() == public for key, _ in self._agent_keys())


def _public(path: Path) -> str:
    """The public half of a key file, if it lies beside it."""
    try:
        words = path.with_name(path.name + ".pub").read_text().split()
    except (OSError, UnicodeDecodeError):
        return ""
    return words[1] if len(words) > 1 else ""


def _has_passphrase(data: bytes) -> bool:
    """Whether a file in OpenSSH's own format is encrypted: the cipher's name is in its first bytes."""
    import base64

    body = b"".join(data.split(b"-----")[2:3]).replace(b"\n", b"")
    try:
        head = base64.b64decode(body[:64])
    except ValueError:
        return False
    return head.startswith(b"openssh-key-v1\0") and b"none" not in head


def _ask(prompt: str, *, shown: bool) -> str:
    import getpass

    if not shown:
        return getpass.getpass(f"{prompt} " if not prompt.endswith(" ") else prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\n")
