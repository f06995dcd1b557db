"""The model of a policy, from which the settings of each mechanism are rendered.

No key has a default, so that an omission allows nothing: a policy sets every key, or ``extends`` a policy that does.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from hermes_exec_policies.rule_names import check_rule_name
from hermes_exec_policies.syscalls import default_syscalls, expand_groups
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

if TYPE_CHECKING:
    from collections.abc import Mapping

Strength = Literal["required", "best_effort"]


def digest_of_policy(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of a whole policy as JSON data."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class PolicyTable(BaseModel):
    """A table of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Files(PolicyTable):
    """The visible file system, and the permissions in it."""

    root: Literal["read-only", "writable"]
    """Whether anything outside of ``write`` and ``scratch`` can be written."""
    run: Paths
    """Paths to read and to execute programs from. Empty with ``hidden = false``: everything."""
    read: Paths
    """Further paths to read."""
    write: Paths
    """Paths to read and write; their files are kept."""
    scratch: Paths
    """Private paths to write; their files are deleted at the end."""
    hidden: bool
    """Whether all other files are hidden."""
    run_written: bool
    """Whether programs may be executed from writable folders."""
    devices: Paths
    """Device files to use; with ``hidden`` there are no others."""


class Network(PolicyTable):
    """Network access."""

    access: Literal["none", "hosts", "open"]
    """``hosts`` allows only the listed ``hosts``, through a proxy."""
    hosts: Hosts
    sockets: Families
    """Socket families that can be created. Empty with ``access = "open"``: any."""


class User(PolicyTable):
    """The user of the processes."""

    ordinary: bool
    """Whether root is forbidden."""
    unique: bool
    """Whether the user ID must have no other processes on the machine."""
    first: Annotated[int, Field(ge=0, le=(1 << 31))]
    """The lowest unique user ID."""


class Privileges(PolicyTable):
    """Privileges beyond file permissions."""

    capabilities: Capabilities
    """The most that a process can have."""
    none_gained: bool
    """Whether programs cannot gain privileges (no_new_privs)."""
    namespaces: bool
    """Whether namespaces can be created."""


class Processes(PolicyTable):
    """Access to other processes."""

    hidden: bool
    """Whether outside processes can be neither seen nor signalled."""
    ipc: Literal["private", "shared"]
    """``shared`` gives access to the outside shared memory and message queues."""
    traced: bool
    """Whether a process may trace others in its sandbox."""
    terminal: bool
    """Whether an outside terminal can be accessed."""
    end_together: bool
    """Whether all processes end with the first one."""


class Environment(PolicyTable):
    """Environment variables."""

    cleared: bool
    """Whether no variable is inherited."""
    keep: Variables
    """Variables that are inherited nevertheless."""
    set: dict[Variable, Value]
    """Variables to set."""


class Syscalls(PolicyTable):
    """The allowed system calls."""

    filtered: bool
    """Whether system calls are filtered."""
    remove: Calls
    """Calls and ``@groups`` to refuse, of those that container engines allow."""
    add: Calls
    """Further calls and ``@groups`` to allow."""
    writable_code: bool
    """Whether memory may be writable and executable, at once or one after the other."""
    set_id_files: bool
    """Whether set-user-ID and set-group-ID files may be created."""


class PolicyLimits(PolicyTable):
    """Resource limits, for all processes together where a mechanism can count them."""

    memory: SomeSize
    processes: SomeCount
    cpus: MaybeAmount
    """Processors that may be busy at once."""
    cpu_time: MaybeAmount
    """CPU seconds of each process."""
    time: MaybeAmount
    """Wall-clock seconds."""
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


class Policy(PolicyTable):
    """A complete policy."""

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
    """Whether a security module (AppArmor or Landlock) has to enforce the rules for files a second time."""
    limits: PolicyLimits
    best_effort: Annotated[tuple[Annotated[str, AfterValidator(check_rule_name)], ...], Field(strict=False)]
    """Rules that are left out if no mechanism can enforce them; all other rules are required."""

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        if self.network.hosts and self.network.access != "hosts":
            raise ValueError('network.hosts is not empty, so network.access should be "hosts"')
        if self.network.access != "open" and not self.network.sockets:
            raise ValueError('network.sockets is empty, which allows any family; ["unix"] is the minimum')
        for path in (*self.files.write, *self.files.scratch):
            inside = [each for each in self.files.run if each != "/" and (path + "/").startswith(each + "/")]
            if inside and not self.files.run_written:
                raise ValueError(f"{path} is writable and in {inside[0]}, from which programs can be executed")
        return self

    def strength(self, rule: str) -> Strength:
        """Whether a rule is required or best effort."""
        return "best_effort" if rule in self.best_effort else "required"

    @property
    def calls(self) -> frozenset[str]:
        """The allowed system calls, some only with certain arguments."""
        allowed = (default_syscalls() | expand_groups(self.syscalls.add)) - expand_groups(self.syscalls.remove)
        return allowed if self.privileges.namespaces else allowed - expand_groups(("@namespaces",))

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole policy, in hexadecimal."""
        return digest_of_policy(self.model_dump(mode="json"))

    @property
    def has_own_loopback(self) -> bool:
        """Whether internet sockets are allowed without any network: for the loopback interface of its namespace."""
        return self.network.access == "none" and not {"inet", "inet6"}.isdisjoint(self.network.sockets)

    @property
    def writable(self) -> tuple[PlacePath, ...]:
        """All writable paths, kept or not."""
        return (*self.files.write, *self.files.scratch)
