"""The models of a run: those of the configuration by name, and scripted replies that the run's folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.capped_model import CappedModel
from hermes_exec_agent.batch.file_digests import digest_content, find_frozen
from hermes_exec_agent.models.catalog import Models
from hermes_exec_agent.models.fallback import Fallback
from hermes_exec_agent.models.protocol import FREE, Price
from hermes_exec_agent.models.retrying import RetryingModel
from hermes_exec_agent.models.scripted import ScriptedModel, read_script
from hermes_exec_agent.models.settings import load_models

if TYPE_CHECKING:
    from hermes_exec_agent.batch.ledger import TrialAccount
    from hermes_exec_agent.batch.settings import Caps
    from hermes_exec_agent.models.call_trace import Capture
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.models.scripted import ScriptEntry

REPLAY = "replay:"


def is_scripted(name: str) -> bool:
    """Whether a model of a run's settings has scripted replies."""
    return name.startswith(REPLAY)


def freeze_model(word: str) -> tuple[str, str, bytes]:
    """Return the name of a model in a run's settings, and the digest and content of its script, if it has one.

    Raises:
        ConfigError: the script cannot be read.
    """
    if not word.startswith(REPLAY):
        return word, "", b""
    path = Path(word.removeprefix(REPLAY))
    read_script(path)
    content = read_regular(path)
    digest = digest_content(content)
    return f"{REPLAY}{to_printable(path.name)}@{digest}", digest, content


def find_price(model: Model) -> Price | None:
    """Return the highest price of the models that may answer; None if one of them has none."""
    if isinstance(model, Fallback):
        prices = [find_price(each) for each in model.models]
        known = [price for price in prices if price is not None]
        if len(known) < len(prices):
            return None
        cached = [price.cached for price in known if price.cached is not None]
        return Price(
            max(price.input for price in known), max(price.output for price in known), max(cached) if cached else None
        )
    if isinstance(model, RetryingModel):
        return model.price
    return FREE if model.scripted else None


def _request_whole(model: Model, capture: Capture) -> None:
    """Let a model request whole replies, as no person reads their pieces."""
    for each in model.models if isinstance(model, Fallback) else (model,):
        if isinstance(each, RetryingModel):
            each.whole, each.capture = True, capture


class ModelSource:
    """Creates the models of trials; connections are shared between trials of one process."""

    def __init__(self, scripts: Path, capture: Capture = "none") -> None:
        """``scripts`` is the folder of the run's scripted replies."""
        self._scripts = scripts
        self._capture: Capture = capture
        self._replies: dict[str, list[ScriptEntry]] = {}
        self._configured: Models | None = None

    def load_configured(self) -> Models:
        """Return the configured models, which are loaded once.

        Raises:
            NoModel, ConfigError: there are none, or their settings are wrong.
        """
        if self._configured is None:
            self._configured = load_models()
            for name in self._configured.names:
                _request_whole(self._configured.get(name), self._capture)
        return self._configured

    def find(self, name: str) -> Models:
        """Return the models of a trial, without caps.

        Raises:
            NoModel, ConfigError: there is no model of that name, or its script cannot be read.
        """
        if not name.startswith(REPLAY):
            return self.load_configured() if name == "" else self.load_configured().with_main(name)
        shown, _, digest = name.removeprefix(REPLAY).rpartition("@")
        if digest not in self._replies:
            self._replies[digest] = read_script(find_frozen(self._scripts / digest, digest))[1]
        return Models(ScriptedModel(self._replies[digest], name=f"scripted: {shown}"))

    def create(self, name: str, account: TrialAccount, max_tokens: int | None) -> Models:
        """Return the models of a trial, whose requests are reserved from its account.

        Raises:
            NoModel, ConfigError: see `find`.
        """
        models = self.find(name)
        main = CappedModel(models.main, account, find_price(models.main), max_tokens)
        auxiliary = CappedModel(models.auxiliary, account, find_price(models.auxiliary), max_tokens)
        return Models(main, auxiliary, secrets=models.secrets)

    def check(self, names: tuple[str, ...], caps: Caps) -> None:
        """Check that all models exist, and have a price where a cap needs one; no request is sent.

        Raises:
            UsageError: a model has no price.
            NoModel, ConfigError: see `find`.
        """
        for name in names:
            models = self.find(name)
            for model in (models.main, models.auxiliary):
                if caps.needs_price and find_price(model) is None:
                    raise UsageError(
                        f"the model {to_printable(model.name)} has no price, so that no cap of money can be kept",
                        remedy="the extra prices, or prices = {input = …, output = …} in [models.NAME] of hermes.toml",
                    )

    async def close(self) -> None:
        """Close all connections."""
        if self._configured is not None:
            await self._configured.close()
