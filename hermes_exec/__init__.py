"""One Terminal for every target: run commands, jobs and skills locally, in containers, over SSH and in clouds.

Names are loaded on first use, so that importing the package is cheap.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec.backend import Backend, Channel, Check, Exit, Receiver
    from hermes_exec.errors import (
        Closed,
        CommandFailed,
        ConfigError,
        GatherFailed,
        HermesError,
        MissingExtra,
        OutcomeUnknown,
        PlaceError,
        PlaceGone,
        PlaceUnavailable,
        ProtocolError,
        Refused,
        TransferError,
        Unsupported,
        UsageError,
    )
    from hermes_exec.files import FileInfo, Files, SyncReport
    from hermes_exec.pool import Fate, Lease, Orchestrator, Pool, Recovered
    from hermes_exec.result import Event, Result, ShellState, Truncation
    from hermes_exec.terminal.forward import Forward
    from hermes_exec.terminal.gather import gather
    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.limits import Limits
    from hermes_exec.terminal.opening import open  # noqa: A004  the usual verb
    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.transport.protocol import Capabilities

    __version__: str

_HOME = {
    "Backend": "backend",
    "Capabilities": "transport.protocol",
    "Channel": "backend",
    "Check": "backend",
    "Closed": "errors",
    "CommandFailed": "errors",
    "ConfigError": "errors",
    "Event": "result",
    "Exit": "backend",
    "Fate": "pool",
    "FileInfo": "files",
    "Files": "files",
    "Forward": "terminal.forward",
    "GatherFailed": "errors",
    "HermesError": "errors",
    "Job": "terminal.job",
    "Lease": "pool",
    "Limits": "terminal.limits",
    "MissingExtra": "errors",
    "Orchestrator": "pool",
    "OutcomeUnknown": "errors",
    "PlaceError": "errors",
    "PlaceGone": "errors",
    "PlaceUnavailable": "errors",
    "Pool": "pool",
    "ProtocolError": "errors",
    "Pty": "terminal.pty",
    "Receiver": "backend",
    "Recovered": "pool",
    "Refused": "errors",
    "Result": "result",
    "Session": "terminal.session",
    "ShellState": "result",
    "Stream": "terminal.stream",
    "SyncReport": "files",
    "Terminal": "terminal.terminal",
    "TransferError": "errors",
    "Truncation": "result",
    "Unsupported": "errors",
    "UsageError": "errors",
    "gather": "terminal.gather",
    "open": "terminal.opening",
}

__all__ = [
    "Backend",
    "Capabilities",
    "Channel",
    "Check",
    "Closed",
    "CommandFailed",
    "ConfigError",
    "Event",
    "Exit",
    "Fate",
    "FileInfo",
    "Files",
    "Forward",
    "GatherFailed",
    "HermesError",
    "Job",
    "Lease",
    "Limits",
    "MissingExtra",
    "Orchestrator",
    "OutcomeUnknown",
    "PlaceError",
    "PlaceGone",
    "PlaceUnavailable",
    "Pool",
    "ProtocolError",
    "Pty",
    "Receiver",
    "Recovered",
    "Refused",
    "Result",
    "Session",
    "ShellState",
    "Stream",
    "SyncReport",
    "Terminal",
    "TransferError",
    "Truncation",
    "Unsupported",
    "UsageError",
    "__version__",
    "gather",
    "open",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = found = version("hermes-exec")
        return found
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hermes_exec' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module("hermes_exec." + home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
