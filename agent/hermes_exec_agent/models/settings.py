"""The configured models, from the environment and from ``[models.NAME]`` in the user's own ``hermes.toml``.

The environment alone is enough: ``LLM_PROVIDER``, ``OPENAI_API_KEY``, ``DEFAULT_MODEL``, and the other variables in
docs/models.md. A project's file has no say, as the address determines who receives the key and the conversation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import to_printable
from hermes_exec.config.plan import is_unconfigured
from hermes_exec.config.secrets import NAME, Secret, SecretSource, resolve_secrets
from hermes_exec.errors import ConfigError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.errors import NoModel
from hermes_exec_agent.models.call_trace import Sampling
from hermes_exec_agent.models.catalog import Models
from hermes_exec_agent.models.dialects import Effort, Reasoning, Thinking, find_dialect
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.fallback import Fallback
from hermes_exec_agent.models.prompt_cache import CacheMarks, needs_marks
from hermes_exec_agent.models.protocol import FREE, Price
from hermes_exec_agent.models.providers import PROVIDERS, Provider, VendorApi, find_provider, is_base_url

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model


def read_table(name: str, table: object) -> ModelSettings:
    """Read the settings of the model ``name``.

    Raises:
        ConfigError: one line for each problem.
    """
    from hermes_exec.config.check import validate_table
    from hermes_exec_agent.models.model_table import ModelTable  # pydantic takes long to import

    where = f"[models.{to_printable(name)}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: should be a table")
    written = validate_table(ModelTable, cast("Mapping[str, object]", table), where)
    values: dict[str, Any] = {field: getattr(written, field) for field in ModelTable.model_fields}
    if written.prices is not None:
        values["prices"] = Price(**written.prices.model_dump())
    return ModelSettings(**values)


_URL_VARIABLES = ("LLM_BASE_URL", "OPENAI_BASE_URL")
_GENERAL_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of one model, from the environment and from a file's table."""

    provider: str | None = None
    """openai, openrouter, nous, deepseek, gemini, wisgate, vllm, sglang, llama.cpp, ollama or custom, with OpenAI's
    chat completions; anthropic, google or openai-responses, with an API of their own."""
    model: str | None = None
    """The provider's name for it."""
    base_url: str | None = None
    """The endpoint's address; the provider's own when left out."""
    key: str | dict[str, object] | None = None
    """Source of the key: env:NAME, file:/path or {command = [argv]}; the provider's variable when left out."""
    window: int | None = None
    """Tokens that a prompt and its reply may have together, 1024 at least."""
    prices: Price | None = None
    """US dollars for a million tokens, to report costs."""
    fallbacks: tuple[str, ...] = ()
    """Names of other models, which are asked in this order if it fails."""
    attempts: int = 5
    """The most attempts of a request."""
    total_s: float = 600.0
    """Seconds for a reply, with all attempts and waits."""
    silence_s: float = 180.0
    """Seconds until the first chunk of a reply, and between two."""
    cache: CacheMarks = "auto"
    """Marks for caches of prompts: auto for Anthropic's models, marked for every model, or off."""
    temperature: float | None = None
    """Of sampling, 0 to 10; the endpoint's default when left out."""
    top_p: float | None = None
    """The share of probability that is sampled from, up to 1; the endpoint's default when left out."""
    seed: int | None = None
    """Of sampling, for endpoints that take one."""
    vision: bool = False
    """Whether it takes images."""
    effort: Effort | None = None
    """Reasoning effort: minimal, low, medium, high, xhigh or max; the endpoint's default when left out."""
    thinking: Thinking | None = None
    """Whether it reasons, on or off; the endpoint's default when left out."""


def load_models(environ: Mapping[str, str] | None = None, tables: Mapping[str, object] | None = None) -> Models:
    """Load every configured model. No request is sent, and no SDK is imported.

    Args:
        environ: the process's own, if left out. It takes precedence over the tables, except over their keys.
        tables: ``[models]`` of the user's file; looked up if both are left out.

    Raises:
        NoModel: no model, or no key for it, is configured.
        ConfigError: a setting is invalid.
    """
    known = os.environ if environ is None else environ
    if environ is None and tables is None and not is_unconfigured(known):
        from hermes_exec.config.load import load_settings

        tables = load_settings().models
    written = {name: read_table(name, table) for name, table in (tables or {}).items()}
    main = _apply_environment(known, written.pop("main", ModelSettings()))
    if word := known.get("AUXILIARY_MODEL"):
        written["auxiliary"] = replace(written.get("auxiliary", main), model=word, fallbacks=())
    for position, word in enumerate(_split_list(known.get("FALLBACK_MODELS", "")), 1):
        name = word
        if word not in written:
            name = f"fallback-{position}"
            written[name] = replace(main, model=word, fallbacks=())
        main = replace(main, fallbacks=(*main.fallbacks, name))
    return _Builder(known, {"main": main, **written}).models()


def _apply_environment(known: Mapping[str, str], main: ModelSettings) -> ModelSettings:
    """Apply the environment to the main model's settings."""
    values: dict[str, Any] = {}
    for field, variables in (
        ("provider", ("LLM_PROVIDER",)),
        ("model", ("DEFAULT_MODEL",)),
        ("base_url", _URL_VARIABLES),
    ):
        if value := next((known[each] for each in variables if known.get(each)), ""):
            values[field] = value
    if window := known.get("LLM_CONTEXT"):
        values["window"] = parse_number(window, 1024)
        if values["window"] is None:
            raise ConfigError(f"LLM_CONTEXT={to_printable(window)}: should be a number of tokens, 1024 or more")
    if "provider" in values and values["provider"] != main.provider and main.provider is not None:
        # The file's address and key belong to another provider.
        values = {"base_url": None, "key": None, **values}
    return replace(main, **values)


def _parse_base_url(name: str, base_url: str) -> str:
    """Validate a base URL, and remove the route of chat completions from its end."""
    if not is_base_url(base_url):
        raise ConfigError(
            f"models.{name}: the base URL is not the address of a web service, or has a password in it",
            remedy="https://host/v1, and the key in its variable",
        )
    return base_url.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def _split_list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


class _Builder:
    """Creates models from settings, each once."""

    def __init__(self, known: Mapping[str, str], settings: Mapping[str, ModelSettings]) -> None:
        self._known = known
        self._settings = settings
        self._secrets: dict[str, Secret] = {}
        self._endpoints: dict[str, Model] = {}

    def models(self) -> Models:
        named = {name: self._with_fallbacks(name) for name in self._settings}
        return Models(named["main"], named.get("auxiliary"), named, secrets=self._secrets.values())

    def _with_fallbacks(self, name: str) -> Model:
        chain = [self._endpoint(each) for each in (name, *self._settings[name].fallbacks)]
        return Fallback(chain) if len(chain) > 1 else chain[0]

    def _endpoint(self, name: str) -> Model:
        if name not in self._endpoints:
            self._endpoints[name] = self._create_endpoint(name)
        return self._endpoints[name]

    def _create_endpoint(self, name: str) -> Model:
        if name not in self._settings:
            raise ConfigError(
                f"[models]: no model is called {to_printable(name)!r}", remedy=f"[models.{to_printable(name)}]"
            )
        settings = self._settings[name]
        chosen = self._choose_provider(name, settings)
        if chosen is None or not settings.model:
            raise self._no_model_error(name, chosen)
        base_url = settings.base_url or chosen.base_url
        if not base_url:
            raise ConfigError(f"models.{name}: provider {chosen.name} has no address of its own", remedy="LLM_BASE_URL")
        if settings.thinking == "off" and settings.effort:
            raise ConfigError(
                f"models.{to_printable(name)}: thinking is off, so that effort = {settings.effort} has no meaning",
                remedy="one of the two",
            )
        base_url = _parse_base_url(name, base_url)
        options: dict[str, Any] = {
            "base_url": base_url,
            "key": self._key(name, settings, chosen),
            "window": settings.window or chosen.window,
            "price": settings.prices or (FREE if chosen.own else None),
            "patience": Patience(settings.attempts, settings.total_s, settings.silence_s),
            "reasoning": Reasoning(settings.effort, settings.thinking),
            "sampling": Sampling(settings.temperature, settings.top_p, settings.seed),
        }
        if chosen.api != "chat":
            return _create_vendor_endpoint(name, settings, chosen.api, options)
        return Endpoint(
            settings.model,
            newer_limit=chosen.newer_limit and settings.base_url is None,
            dialect=find_dialect(chosen.name, base_url),
            vision=settings.vision,
            marks_cache=needs_marks(settings.cache, settings.model),
            **options,
        )

    def _choose_provider(self, name: str, settings: ModelSettings) -> Provider | None:
        """Return the configured provider; without one, that of a provider's key, or a custom one for a base URL."""
        if settings.provider is None:
            keyed = (each for each in PROVIDERS.values() if each.by_key and each.key and self._known.get(each.key))
            return next(keyed, PROVIDERS["custom"] if settings.base_url else None)
        chosen = find_provider(settings.provider)
        if chosen is None:
            from_environment = self._known.get("LLM_PROVIDER") == settings.provider
            where = "LLM_PROVIDER=" if from_environment else f"[models.{to_printable(name)}]: provider "
            raise ConfigError(
                f"{where}{to_printable(settings.provider)}: not a provider that is known",
                remedy=f"{', '.join(PROVIDERS)}; custom takes LLM_BASE_URL",
            )
        return chosen

    def _key(self, name: str, settings: ModelSettings, chosen: Provider) -> Secret | None:
        if settings.key is not None:
            label = f"{name}_key" if NAME.match(f"{name}_key") else "model_key"
            try:
                source = SecretSource.parse(settings.key)
            except ValueError as error:
                raise ConfigError(f"models.{name}: key: {error}") from None
            found = resolve_secrets({label: source}, self._known)[label]
        else:
            variables = (chosen.key, _GENERAL_KEY) if chosen.key else (_GENERAL_KEY,)
            variable = next((each for each in variables if self._known.get(each)), None)
            if variable is None:
                if chosen.needs_key:
                    raise self._no_model_error(name, chosen)
                return None
            found = Secret(variable, self._known[variable])
        self._secrets[found.name] = found
        return found

    def _no_model_error(self, name: str, chosen: Provider | None) -> NoModel:
        known, settings = self._known, self._settings[name]
        keys = dict.fromkeys(
            [chosen.key, _GENERAL_KEY]
            if chosen
            else [each.key for each in PROVIDERS.values() if each.by_key] + [_GENERAL_KEY]
        )
        found = {
            "LLM_PROVIDER": settings.provider or "",
            "DEFAULT_MODEL": settings.model or "",
            " or ".join(_URL_VARIABLES): settings.base_url or "",
        }
        looked = [f"{variable}: {to_printable(value) if value else 'not set'}" for variable, value in found.items()]
        looked += [f"{key}: {'set' if known.get(key) else 'not set'}" for key in keys if key]
        lacking = "a provider" if chosen is None else "DEFAULT_MODEL" if not settings.model else "a key"
        return NoModel(
            f"no model to ask: {lacking} is not set" + ("" if name == "main" else f" for models.{to_printable(name)}"),
            remedy="LLM_PROVIDER, DEFAULT_MODEL and OPENAI_API_KEY in the environment",
            looked_for=tuple(looked),
        )


def _create_vendor_endpoint(name: str, settings: ModelSettings, api: VendorApi, options: dict[str, Any]) -> Model:
    """Create a model behind a provider's own API."""
    from hermes_exec_agent.models.vendor_endpoint import VendorEndpoint

    if settings.vision:
        raise ConfigError(
            f"models.{name}: images are not sent by this provider's own API",
            remedy="vision = false, or a provider in the form of chat completions",
        )
    return VendorEndpoint(settings.model or "", api=api, marks_cache=settings.cache != "off", **options)
