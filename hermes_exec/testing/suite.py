"""All behaviours, as one class."""

from __future__ import annotations

from hermes_exec.testing.running import Running


class Conformance(Running):
    """Every behaviour that a backend has to show."""
