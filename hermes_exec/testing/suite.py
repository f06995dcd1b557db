"""All behaviours, as one class."""

from __future__ import annotations

from hermes_exec.testing.connection import ConnectionSuite
from hermes_exec.testing.files import FilesSuite
from hermes_exec.testing.input import InputSuite
from hermes_exec.testing.interactive import InteractiveSuite
from hermes_exec.testing.isolation import IsolationSuite
from hermes_exec.testing.jobs import JobsSuite
from hermes_exec.testing.killing import KillingSuite
from hermes_exec.testing.limiting import LimitingSuite
from hermes_exec.testing.machinery import MachinerySuite
from hermes_exec.testing.opening import OpeningSuite
from hermes_exec.testing.output import OutputSuite
from hermes_exec.testing.ports import PortsSuite
from hermes_exec.testing.quiet import QuietSuite
from hermes_exec.testing.running import RunningSuite
from hermes_exec.testing.sessions import SessionsSuite
from hermes_exec.testing.state import StateSuite
from hermes_exec.testing.streams import StreamsSuite


class CommandsSuite(
    RunningSuite, OutputSuite, InputSuite, StreamsSuite, KillingSuite, IsolationSuite, OpeningSuite, QuietSuite
):
    """The behaviours of every target."""


class ShellsSuite(SessionsSuite, StateSuite, MachinerySuite):
    """The behaviours of live shells."""


class GuestSuite(ConnectionSuite, JobsSuite, InteractiveSuite, FilesSuite, PortsSuite, LimitingSuite):
    """The behaviours that need a guest."""


class Conformance(CommandsSuite, ShellsSuite, GuestSuite):
    """All behaviours required of a backend."""
