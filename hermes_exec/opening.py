"""From a target to an open Terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec import execute, registry
from hermes_exec.backend import Backend
from hermes_exec.collect import DEFAULT_MAX_OUTPUT
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from hermes_exec.config.profile import Profile
    from hermes_exec.config.secrets import Secret
    from hermes_exec.observe.audit import Audit


class Opening:
    """What ``open`` gives: ``await`` it for a Terminal, or use it with ``async with``."""

    def __init__(self, target: str | Backend | None, options: Mapping[str, Any]) -> None:
        self._target = target
        self._options = dict(options)
        self._terminal: Terminal | None = None

    def __await__(self) -> Generator[Any, None, Terminal]:
        """Open the place."""
        return open_terminal(self._target, **self._options).__await__()

    async def __aenter__(self) -> Terminal:
        """Open the place."""
        self._terminal = await self
        return self._terminal

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._terminal is not None:
            await self._terminal.close()


def open(
    target: str | Backend | None = None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | None = None,
    carrier: Literal["auto", "guest", "plain"] | None = None,
    audit: bool | None = None,
) -> Opening:
    """Open a place: ``async with hermes_exec.open("local") as terminal``.

    Args:
        target: a profile's name, a one-line target such as ``docker:python:3.11``, a Backend, or None
            for the configured default.
        cwd: the folder that commands start in.
        env: variables for every command.
        max_output: bytes of each stream that results keep; 8 MiB by default.
        lease_s: seconds that the place goes on after the orchestrator vanished; 900 by default.
        carrier: ``guest`` needs a Python in the place, ``plain`` only a shell and keeps fewer promises
            (docs/promises.md); ``auto`` takes the best that is there. As configured when left out.
        audit: whether commands are recorded in the audit; as configured when left out.

    Raises:
        ConfigError: the target or the configuration is wrong.
        PlaceUnavailable: the place could not be opened; nothing is left behind.
    """
    return Opening(
        target,
        {
            "cwd": cwd,
            "env": env,
            "max_output": max_output,
            "lease_s": lease_s,
            "carrier": carrier,
            "audit": audit,
        },
    )


async def open_terminal(
    target: str | Backend | None,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    max_output: int | None,
    lease_s: float | None,
    carrier: str | None,
    audit: bool | None,
) -> Terminal:
    """See ``open``."""
    plan = Plan(target)
    if cwd is not None:
        plan.cwd = cwd
    plan.env.update(env or {})
    if carrier is not None:
        plan.carrier = carrier
    backend = plan.backend
    await backend.open()
    try:
        way = await _carrier(backend, plan, plan.lease_s if lease_s is None else lease_s)
    except BaseException:
        await backend.close()
        raise
    return Terminal(
        backend,
        way,
        session=plan.session,
        max_output=plan.max_output if max_output is None else max_output,
        audit=plan.audit(wanted=audit),
    )


class Plan:
    """Everything that a target and its profile say about opening a place."""

    def __init__(self, target: str | Backend | None) -> None:
        self.cwd: str | None = None
        self.env: dict[str, str] = {}
        self.carrier = "auto"
        self.lease_s = 900.0
        self.max_output = DEFAULT_MAX_OUTPUT
        self.session: dict[str, Any] = {}
        self.python: str | None = None
        self._secrets: list[Secret] = []
        self._audits = True
        if isinstance(target, Backend):
            self.backend = target
        else:
            self._resolve(target)

    def _resolve(self, target: str | None) -> None:
        from hermes_exec.config.load import load_settings, resolve

        settings = load_settings()
        resolved = resolve(target, settings)
        self._audits = settings.audit.enabled
        self._take(resolved.chain[0])
        self.backend = registry.backend_class(resolved.chain[0].type).from_profile(resolved.chain[0])

    def _take(self, profile: Profile) -> None:
        from hermes_exec.config.secrets import resolve_secrets

        secrets = resolve_secrets(profile.secrets, os.environ)
        self._secrets = list(secrets.values())
        self.cwd = profile.cwd
        self.env = {**profile.env, **{name: secret.reveal() for name, secret in secrets.items()}}
        self.carrier = profile.carrier
        self.lease_s = profile.lease_s
        self.max_output = profile.max_output
        self.python = profile.python
        if profile.shell:
            self.session["shell"] = execute.encode(profile.shell)
        if profile.login:
            self.session["login"] = True
        if profile.setup:
            self.session["setup"] = [execute.encode(line) for line in profile.setup]

    def audit(self, *, wanted: bool | None) -> Audit | None:
        """The audit of this terminal, or None."""
        if not (self._audits if wanted is None else wanted):
            return None
        from hermes_exec.config.paths import audit_file
        from hermes_exec.observe.audit import Audit
        from hermes_exec.observe.redact import Redactor

        return Audit(audit_file(os.environ), Redactor(self._secrets))


async def _carrier(backend: Backend, plan: Plan, lease_s: float) -> Any:
    from hermes_exec.link.carrier import GuestCarrier
    from hermes_exec.link.link import Link

    if plan.carrier != "plain":
        link = Link(backend, env=plan.env, cwd=plan.cwd, lease_s=lease_s)
        try:
            await link.open()
        except PlaceUnavailable:
            if plan.carrier == "guest":
                raise
        else:
            return GuestCarrier(link, backend.features)
    from hermes_exec.plain import PlainCarrier

    return await PlainCarrier.open(backend, env=plan.env, cwd=plan.cwd)
