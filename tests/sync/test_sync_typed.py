"""What type checkers see; each line is checked by mypy and pyright, and runs too."""

from __future__ import annotations

from typing import assert_type

import hermes_exec.sync as hx
from hermes_exec._sync.proxy import BlockingIterator


def test_the_types_are_those_of_the_blocking_face() -> None:
    with hx.open("local", audit=False) as terminal:
        assert_type(terminal, hx.Terminal)
        assert_type(terminal.target, str)
        assert_type(terminal.capabilities, hx.Capabilities)
        assert_type(terminal.run("true", timeout=5), hx.Result)
        with terminal.session() as session:
            assert_type(session, hx.Session)
            assert_type(session.run("true").stdout, bytes)
            assert_type(session.background_output(), tuple[bytes, bytes])
        with terminal.stream("true") as stream:
            assert_type(stream, hx.Stream)
            for event in stream:
                assert_type(event, hx.Event)
        job = terminal.start("true")
        assert_type(job, hx.Job)
        assert_type(job.logs(), BlockingIterator[hx.Event])
        assert_type(job.wait(), hx.Result)
        job.prune()
