"""Adapters from the configuration: ``[gateway.platforms.NAME]``, by the entry points of their kinds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from hermes_exec.config.check import nearest_name
from hermes_exec.config.paths import to_printable
from hermes_exec.config.plugins import find_plugins, load_entry_point, own_entry_points
from hermes_exec.config.secrets import SecretSource, resolve_secrets
from hermes_exec.errors import ConfigError, HermesError
from hermes_exec.extras import EXTRAS, require
from hermes_exec_agent.frontends.gateway.adapter import ENTRY_POINTS
from hermes_exec_agent.frontends.gateway.listener import Listener, WebhookReceiver

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import GatewaySettings
    from hermes_exec_agent.frontends.gateway.adapter import Adapter

_LAST_PORT = 65535


def create_adapters(settings: GatewaySettings) -> list[Adapter]:
    """Return an adapter for each account of the configuration.

    Raises:
        ConfigError: no account is configured, a table is wrong, a secret is missing, or an account has two tables.
        MissingExtra: the library of a platform is not installed.
    """
    if not settings.platforms:
        raise ConfigError("no platform is configured", remedy="[gateway.platforms.telegram] in your hermes.toml")
    known = own_entry_points(ENTRY_POINTS)
    known |= find_plugins(ENTRY_POINTS, is_reserved=known.__contains__)
    adapters = [_create(name, table, known) for name, table in settings.platforms.items()]
    accounts = [(each.platform, each.account) for each in adapters]
    if len(set(accounts)) != len(accounts):
        raise ConfigError("[gateway.platforms]: two tables are of one account", remedy="remove one of them")
    return adapters


def create_listener(settings: GatewaySettings, adapters: Sequence[Adapter]) -> Listener | None:
    """Return the listener, if an account or the metrics need one.

    Raises:
        ConfigError: the address has no port of its range, or the token is missing.
        MissingExtra: its libraries are not installed.
    """
    if not (settings.metrics or any(isinstance(each, WebhookReceiver) and each.path for each in adapters)):
        return None
    require("server", "the gateway's listener")
    host, _, port = settings.listen.rpartition(":")
    if int(port) > _LAST_PORT:
        raise ConfigError(f"[gateway] listen: there is no port {port}", remedy='listen = "127.0.0.1:8645"')
    sources = {} if settings.metrics_token is None else {"metrics_token": settings.metrics_token}
    token = resolve_secrets(sources, os.environ).get("metrics_token")
    return Listener(host.strip("[]"), int(port), has_metrics=settings.metrics, metrics_token=token)


def find_secrets(settings: GatewaySettings) -> list[Secret]:
    """Return the secrets of variables and files that the gateway uses, which no record may have."""
    found: list[Secret] = []
    for name, source in _list_sources(settings):
        if source.kind != "command":
            with contextlib.suppress(HermesError):
                found += resolve_secrets({name: source}, os.environ).values()
    return found


def hide_tokens(settings: GatewaySettings) -> None:
    """Remove the variables with secrets from the environment, which commands of the agent inherit."""
    for _, source in _list_sources(settings):
        if source.kind == "env":
            os.environ.pop(source.where[0], None)


def _list_sources(settings: GatewaySettings) -> list[tuple[str, SecretSource]]:
    """Return what looks like the source of a secret in the tables of accounts, and that of the metrics' token."""
    found: list[tuple[str, SecretSource]] = []
    if settings.metrics_token is not None:
        found.append(("metrics_token", settings.metrics_token))
    for table in settings.platforms.values():
        for name, source in table.items():
            if isinstance(source, str) and source.startswith(("env:", "file:")):
                with contextlib.suppress(ValueError):
                    found.append((name, SecretSource.parse(source)))
    return found


def _create(name: str, table: Mapping[str, object], known: Mapping[str, EntryPoint]) -> Adapter:
    kind = table.get("type", name)
    if not isinstance(kind, str) or kind not in known:
        shown = to_printable(str(kind))
        raise ConfigError(
            f"[gateway.platforms.{to_printable(name)}]: no kind of platform is called {shown!r}",
            remedy=f'type = "{nearest_name(str(kind), known) or min(known)}"',
        )
    if kind in EXTRAS:
        require(kind, f"the platform {kind}")
    create = cast("Callable[[str, Mapping[str, object]], Adapter]", load_entry_point(known[kind]))
    return create(name, {key: value for key, value in table.items() if key != "type"})
