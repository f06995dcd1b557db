"""All behaviours, as one class."""

from __future__ import annotations

from hermes_exec.testing.connection import Connection
from hermes_exec.testing.files import Files
from hermes_exec.testing.input import Input
from hermes_exec.testing.interactive import Interactive
from hermes_exec.testing.isolation import Isolation
from hermes_exec.testing.jobs import Jobs
from hermes_exec.testing.killing import Killing
from hermes_exec.testing.limiting import Limiting
from hermes_exec.testing.machinery import Machinery
from hermes_exec.testing.opening import Opening
from hermes_exec.testing.output import Output
from hermes_exec.testing.ports import Ports
from hermes_exec.testing.quiet import Quiet
from hermes_exec.testing.running import Running
from hermes_exec.testing.sessions import Sessions
from hermes_exec.testing.state import State
from hermes_exec.testing.streams import Streams


class Commands(Running, Output, Input, Streams, Killing, Isolation, Opening, Quiet):
    """What holds on every place."""


class Shells(Sessions, State, Machinery):
    """What live shells keep."""


class Parts(Connection, Jobs, Interactive, Files, Ports, Limiting):
    """What a guest adds."""


class Conformance(Commands, Shells, Parts):
    """Every behaviour that a backend has to show."""
