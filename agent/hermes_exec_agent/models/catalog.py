"""The models of one agent, by name."""

from __future__ import annotations

import asyncio
import threading
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
        configured: Model | None = None,
    ) -> None:
        """Without ``auxiliary``, the main model summarizes too.

        ``configured`` is the main model of the configuration, if ``main`` is another one.
        """
        self.main = main
        self.auxiliary = auxiliary or main
        self._own_auxiliary = auxiliary
        self._configured = configured or main
        self._named: dict[str, Model] = {**(named or {}), "main": main}
        self.secrets = tuple(secrets)
        """The models' keys."""
        self._is_preparing = False
        self.redactor = Redactor(self.secrets)
        """Removes the keys from text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `get` accepts."""
        return ("main", "auxiliary", *sorted(self._named.keys() - {"main", "auxiliary"}))

    @property
    def choices(self) -> dict[str, Model]:
        """The models that `with_main` chooses from, by name; ``main`` is that of the configuration."""
        return {name: self.get(name) for name in self.names} | {"main": self._configured}

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
        """Return these models with the one called ``name`` as the main model; ``main`` is that of the configuration.

        Raises:
            ConfigError: no model has that name.
        """
        return Models(
            self._configured if name == "main" else self.get(name),
            self._own_auxiliary,
            {each: model for each, model in self._named.items() if each != "main"},
            secrets=self.secrets,
            configured=self._configured,
        )

    def prepare(self) -> None:
        """Prepare the main model; see `protocol.prepare`."""
        prepare(self.main)

    def start_preparing(self) -> None:
        """Prepare the main model in a thread, which does not delay the end of the program; once for many targets."""
        if self._is_preparing:
            return
        self._is_preparing = True
        threading.Thread(target=self.prepare, name="prepare the model", daemon=True).start()

    async def close(self) -> None:
        """Close all connections."""
        every = {id(model): model for model in (self._configured, self.auxiliary, *self._named.values())}
        await asyncio.gather(*(model.close() for model in every.values()))
