"""The models of one agent, by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.models.protocol import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.models.protocol import Model


class Models:
    """``main`` answers, ``auxiliary`` summarizes, and the others are chosen by name."""

    def __init__(
        self,
        main: Model,
        auxiliary: Model | None = None,
        named: Mapping[str, Model] | None = None,
        *,
        secrets: Iterable[Secret] = (),
    ) -> None:
        """Without ``auxiliary``, the main model summarizes too."""
        self.main = main
        self.auxiliary = auxiliary or main
        self._named: dict[str, Model] = {"main": main, **(named or {})}
        self.secrets = tuple(secrets)
        """The models' keys."""
        self.redactor = Redactor(self.secrets)
        """Removes the keys from text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `get` accepts."""
        return ("main", "auxiliary", *sorted(self._named.keys() - {"main", "auxiliary"}))

    def get(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ConfigError: no model has that name.
        """
        if name == "auxiliary":
            return self.auxiliary
        try:
            return self._named[name]
        except KeyError:
            raise ConfigError(
                f"no model is called {name!r}; there are {', '.join(self.names)}",
                remedy=f"[models.{name}] in hermes.toml",
            ) from None

    def with_main(self, name: str) -> Models:
        """Return these models with the one called ``name`` as the main model.

        Raises:
            ConfigError: no model has that name.
        """
        return Models(self.get(name), self.auxiliary, self._named, secrets=self.secrets)

    def prepare(self) -> None:
        """Prepare the main model; see `protocol.prepare`."""
        prepare(self.main)

    async def close(self) -> None:
        """Close all connections."""
        every = {id(model): model for model in (self.main, self.auxiliary, *self._named.values())}
        await asyncio.gather(*(model.close() for model in every.values()))
