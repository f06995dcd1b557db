"""The profile of a Daytona sandbox."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hermes_exec.config.secrets import SecretSource
from hermes_exec.config.values import Count, Gpus, Name, Size, Source, Text
from hermes_exec_backends.profiles.cloud import CloudProfile

Minutes = Annotated[int, Field(ge=0)]
_SNAPSHOT = "snapshot:"


class DaytonaProfile(CloudProfile, frozen=True):
    """A Daytona sandbox: created from an image or a snapshot, or one that exists."""

    target_field: ClassVar[str | None] = "image"
    attach_field: ClassVar[str | None] = "sandbox"

    type: Literal["daytona"] = "daytona"
    """`daytona`."""
    sandbox: Name | None = None
    """The id or name of a sandbox that exists, to work in instead of a new one."""
    snapshot: Name | None = None
    """The snapshot to start from instead of an image."""
    api_url: Text | None = None
    """The service's address; Daytona's own when left out."""
    api_key: Source = SecretSource("env", ("DAYTONA_API_KEY",))
    """Where the key is found: `env:NAME`, `file:/path` or `{command = [...]}`."""
    organization: Name | None = None
    """The organization's id; the key's own when left out."""
    region: Name | None = None
    """Where to run; the account's default when left out."""
    user: Name | None = None
    """The user that commands run as."""

    cpu: Count | None = None
    """CPUs."""
    memory: Size | None = None
    """Memory."""
    disk: Size | None = None
    """Disk."""
    gpu: Gpus | None = None
    """How many GPUs, or of which class."""

    auto_stop_min: Minutes | None = None
    """Minutes without activity until it is stopped; 0 is never; follows the lease when left out."""
    auto_archive_min: Minutes | None = None
    """Minutes after the stop until it is archived; follows the lease when left out."""
    auto_delete_min: Minutes | None = None
    """Minutes after the stop until it is deleted; follows the lease when left out."""

    @classmethod
    def fields_of_target(cls, text: str) -> Mapping[str, object]:
        """``daytona:IMAGE``, ``daytona:@SANDBOX`` or ``daytona:snapshot:NAME``."""
        if text.startswith(_SNAPSHOT):
            return {"snapshot": text.removeprefix(_SNAPSHOT)}
        return super().fields_of_target(text)

    def target_text(self) -> str:
        """The one-line target; one of a snapshot says so."""
        return f"daytona:{_SNAPSHOT}{self.snapshot}" if self.snapshot else super().target_text()

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [key for key in ("sandbox", "snapshot", "image", "dockerfile") if getattr(self, key)]
        if len(origins) > 1:
            raise ValueError(f"{origins[0]!r} and {origins[1]!r} cannot both say what to start")
        return self
