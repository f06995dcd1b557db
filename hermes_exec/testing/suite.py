"""All behaviours, as one class."""

from __future__ import annotations

from hermes_exec.testing.connection import Connection
from hermes_exec.testing.input import Input
from hermes_exec.testing.isolation import Isolation
from hermes_exec.testing.killing import Killing
from hermes_exec.testing.machinery import Machinery
from hermes_exec.testing.output import Output
from hermes_exec.testing.running import Running
from hermes_exec.testing.sessions import Sessions
from hermes_exec.testing.state import State
from hermes_exec.testing.streams import Streams


class Conformance(Running, Output, Input, Sessions, State, Killing, Machinery, Streams, Isolation, Connection):
    """Every behaviour that a backend has to show."""
