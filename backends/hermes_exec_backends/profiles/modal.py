"""The profile of a Modal sandbox."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hermes_exec.config.values import Amount, Count, Gpus, Name, Names, Size, Source
from hermes_exec_backends.profiles.cloud import CloudProfile

Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], Field(strict=False)]


class ModalProfile(CloudProfile, frozen=True):
    """A Modal sandbox: created from an image, or one that is alive."""

    target_field: ClassVar[str | None] = "image"
    attach_field: ClassVar[str | None] = "sandbox"

    type: Literal["modal"] = "modal"
    """`modal`."""
    sandbox: Name | None = None
    """The id of a sandbox that is alive, to work in instead of a new one."""
    app: Name = "hermes-exec"
    """The app that sandboxes belong to; created when missing."""
    environment: Name | None = None
    """Modal's environment; the account's default when left out."""
    token_id: Source | None = None
    """Where the token's id is found: `env:NAME`, `file:/path` or `{command = [...]}`; Modal's own files
    and variables when left out."""
    token_secret: Source | None = None
    """Where the token's secret is found, in the same forms."""
    python_version: Name = "3.11"
    """The Python of Modal's own image."""
    vendor_secrets: Names = ()
    """Names of secrets stored at Modal; `secrets` are looked up on this machine instead."""

    gpu: Gpus | None = None
    """A kind of GPU, with a count after a colon: `A100`, `H100:2`."""
    cpu: Amount | None = None
    """CPUs reserved."""
    cpu_limit: Amount | None = None
    """CPUs at most."""
    memory: Size | None = None
    """Memory reserved."""
    memory_limit: Size | None = None
    """Memory at most."""
    timeout: Count = 3600
    """Seconds that the sandbox lives; more than the vendor's day is reached by moving it."""
    idle_timeout: Count | None = None
    """Seconds without activity after which it is stopped."""
    region: Names = ()
    """Regions to run in; anywhere when empty."""
    ports: Ports = ()
    """Ports of the sandbox that get an address at Modal, for others than this terminal; it forwards any port."""
    generation: Literal["auto", "v1", "v2"] = "auto"
    """The vendor's generation of sandboxes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.sandbox and (self.image or self.dockerfile):
            raise ValueError("'sandbox' is one that is alive already, so it takes no image")
        for limit, least in (("cpu_limit", self.cpu), ("memory_limit", self.memory)):
            most = getattr(self, limit)
            if most is not None and least is not None and most < least:
                raise ValueError(f"{limit!r} is less than what is reserved")
        if self.generation == "v2" and self.gpu:
            raise ValueError("'gpu' needs the first generation of sandboxes")
        if self.network == "blocked" and (self.ports or self.allow):
            raise ValueError("a sandbox without a network has no 'ports' and no 'allow'")
        return self
