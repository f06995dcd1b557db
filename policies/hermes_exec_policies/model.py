"""What a policy says: one model, from which every mechanism's own settings are rendered.

Nothing has a default, so that nothing is allowed because somebody forgot it: a policy says everything, or
``extends`` one that does.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from hermes_exec_policies.rule_names import rule_name
from hermes_exec_policies.syscalls import expanded, usual
from hermes_exec_policies.values import (
    Calls,
    Capabilities,
    Families,
    Hosts,
    MaybeAmount,
    MaybeCount,
    MaybeSize,
    Name,
    Paths,
    PlacePath,
    SomeCount,
    SomeSize,
    Value,
    Variable,
    Variables,
)

Strength = Literal["required", "best_effort"]


class Part(BaseModel):
    """A table of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Files(Part):
    """What of the file system there is, and what may be done with it."""

    root: Literal["read-only", "writable"]
    """Whether anything outside of ``write`` and ``scratch`` can be written."""
    run: Paths
    """What may be read, and programs started from. Empty with ``hidden = false``: everything."""
    read: Paths
    """What may be read besides."""
    write: Paths
    """What may be read and written, and is kept."""
    scratch: Paths
    """What may be written, is private and is gone afterwards."""
    hidden: bool
    """Whether everything else cannot even be read."""
    run_written: bool
    """Whether programs may be started from where files can be written."""
    devices: Paths
    """Device files that may be used; with ``hidden``, there are no others."""


class Network(Part):
    """Whom processes can talk to."""

    access: Literal["none", "hosts", "open"]
    """``hosts`` is those of ``hosts`` through a proxy, and nobody else."""
    hosts: Hosts
    sockets: Families
    """Families of sockets that can be made. Empty with ``access = "open"``: any."""


class User(Part):
    """Who processes are."""

    ordinary: bool
    """Whether it must not be root."""
    unique: bool
    """Whether it must be a number that nothing else on the machine runs as."""
    first: Annotated[int, Field(ge=0, le=(1 << 31))]
    """The lowest number that is taken for a unique one."""


class Privileges(Part):
    """What processes may do beyond what files allow them."""

    capabilities: Capabilities
    """Those that can be had at most."""
    none_gained: bool
    """Whether no program gives more rights than its starter has (no_new_privs)."""
    namespaces: bool
    """Whether new namespaces can be made."""


class Processes(Part):
    """What processes can know of and do to others."""

    hidden: bool
    """Whether those outside can be neither seen nor signalled."""
    ipc: Literal["private", "shared"]
    """Whether shared memory and queues are those of everybody."""
    traced: bool
    """Whether a process may look into another one of the same sandbox."""
    terminal: bool
    """Whether there is a terminal that somebody outside types at."""
    end_together: bool
    """Whether all of them end with the first."""


class Environment(Part):
    """Variables."""

    cleared: bool
    """Whether nothing of what is set outside is inherited."""
    keep: Variables
    """What is inherited all the same."""
    set: dict[Variable, Value]
    """What is set."""


class Syscalls(Part):
    """Which calls of the kernel can be made."""

    filtered: bool
    """Whether any is refused at all."""
    remove: Calls
    """Calls and ``@groups`` that are refused, of those that container engines allow."""
    add: Calls
    """Calls and ``@groups`` that are allowed besides."""
    writable_code: bool
    """Whether memory may be written and run at once, or be made runnable after it was written."""
    set_id_files: bool
    """Whether files may be made that run as another user."""


class Limits(Part):
    """How much may be used; each is of all processes together where something can count them so."""

    memory: SomeSize
    processes: SomeCount
    cpus: MaybeAmount
    """Processors that may be busy at once."""
    cpu_time: MaybeAmount
    """Seconds of processor time of each process."""
    time: MaybeAmount
    """Seconds of the clock."""
    disk: SomeSize
    """Bytes in each writable folder."""
    inodes: SomeCount
    """Files and folders in each writable folder."""
    shared_memory: SomeSize
    """Bytes in /dev/shm."""
    file_size: MaybeSize
    open_files: MaybeCount
    output: MaybeSize
    """Bytes of standard output and error together."""
    core: MaybeSize
    locked_memory: MaybeSize
    message_queues: MaybeSize
    pending_signals: MaybeCount


class Policy(Part):
    """A policy that is complete."""

    name: Name
    summary: str
    files: Files
    network: Network
    user: User
    privileges: Privileges
    processes: Processes
    environment: Environment
    syscalls: Syscalls
    lsm: bool
    """Whether a security module (AppArmor or Landlock) has to hold the rules of files once more."""
    limits: Limits
    best_effort: Annotated[tuple[Annotated[str, AfterValidator(rule_name)], ...], Field(strict=False)]
    """Rules that are left out where nothing can enforce them; every other one is required."""

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        if self.network.hosts and self.network.access != "hosts":
            raise ValueError('network.hosts are named, so network.access should be "hosts"')
        if self.network.access != "open" and not self.network.sockets:
            raise ValueError('network.sockets is empty, which means any; ["unix"] is the least')
        for path in (*self.files.write, *self.files.scratch):
            inside = [each for each in self.files.run if each != "/" and (path + "/").startswith(each + "/")]
            if inside and not self.files.run_written:
                raise ValueError(f"{path} can be written and lies in {inside[0]}, from where programs start")
        return self

    def strength(self, rule: str) -> Strength:
        """How much a rule matters."""
        return "best_effort" if rule in self.best_effort else "required"

    @property
    def calls(self) -> frozenset[str]:
        """Every system call that is allowed, some of them with certain arguments only."""
        allowed = (usual() | expanded(self.syscalls.add)) - expanded(self.syscalls.remove)
        return allowed if self.privileges.namespaces else allowed - expanded(("@namespaces",))

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says, in hexadecimal."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def writable(self) -> tuple[PlacePath, ...]:
        """Everything that can be written, kept or not."""
        return (*self.files.write, *self.files.scratch)
