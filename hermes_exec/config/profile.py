"""The base class of all profiles, with the fields that every type of target has."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from hermes_exec.config.secrets import SecretSource
from hermes_exec.config.type_names import resolve_alias
from hermes_exec.config.values import Environment, Seconds, Size, Sources, Text, Words

if TYPE_CHECKING:
    from collections.abc import Mapping


class Profile(
    BaseModel,
    frozen=True,
    extra="forbid",
    strict=True,
    hide_input_in_errors=True,
):
    """A target and how to work there. Each type of target has a subclass, found by its ``type``.

    A subclass narrows ``type`` to a literal with a default, and declares the syntax of its one-line target
    with the class variables below.
    """

    target_field: ClassVar[str | None] = None
    """The field that ``TYPE:TEXT`` fills."""
    attach_field: ClassVar[str | None] = None
    """The field that ``TYPE:@TEXT`` fills: a target that already exists."""

    type: str
    """The kind of target."""
    description: str = ""
    """A line for people, shown by `profile list`."""
    via: Text | None = None
    """The target that this one is inside of: a profile's name or a one-line target."""
    cwd: Text | None = None
    """The folder that commands start in; the target's default when left out."""
    env: Environment = Field(default_factory=dict[str, str], repr=False)
    """Variables for every command. Not for secrets: these are shown."""
    secrets: Sources = Field(default_factory=dict[str, SecretSource])
    """Variables whose values are looked up when the target is opened: a list of names of environment
    variables, or a table of name = source."""
    shell: Text | None = None
    """The shell of sessions; bash where there is one, else sh, when left out."""
    login: bool = False
    """Whether sessions are login shells, with /etc/profile and its `module` command. Programs and jobs have none."""
    setup: Words = ()
    """Shell lines that run when the shell of a session starts, such as `module load python`. Programs (several
    arguments of `run`) and jobs have no session. A line that fails is passed over; `LINE || exit 1`
    ends the session instead."""
    python: Text | None = None
    """The interpreter to use there; the best of the usual ones when left out."""
    carrier: Literal["auto", "guest", "plain"] = "auto"
    """How commands travel: `guest` needs a Python there, `plain` only a sh and promises less."""
    lease_s: Seconds = 900.0
    """Seconds that sessions go on after the orchestrator vanished."""
    keepalive_s: Seconds = 15.0
    """Seconds of silence after which the other side is asked for a sign of life while something waits for it; after
    three times as many the connection counts as broken."""
    job_lease_s: Seconds = 86400.0
    """Seconds after which a job that still runs is stopped."""
    max_output: Size = 8 << 20
    """Bytes of each output stream that a result keeps, from its head and its tail."""

    @field_validator("type", mode="before")
    @classmethod
    def _canonical(cls, value: object) -> object:
        return resolve_alias(value) if isinstance(value, str) else value

    @classmethod
    def kind(cls) -> str:
        """Return the type of this class of profiles."""
        return str(cls.model_fields["type"].default)

    @classmethod
    def fields_of_target(cls, text: str) -> Mapping[str, object]:
        """Return the fields for ``text``, which follows ``TYPE:`` in a target.

        Raises:
            ValueError: the text is not valid for this type; the message shows the syntax.
        """
        if text.startswith("@") and cls.attach_field:
            return {cls.attach_field: text[1:]}
        if cls.target_field is None:
            raise ValueError("nothing may follow it")
        return {cls.target_field: text}

    def target_text(self) -> str:
        """Return the one-line target that opens this target again, without its options and without secrets."""
        for field, mark in ((self.attach_field, "@"), (self.target_field, "")):
            value = getattr(self, field) if field else None
            if value:
                return f"{self.type}:{mark}{value}"
        return self.type
