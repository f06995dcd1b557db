"""What is said of a memory that cannot be used; that of one that can is said with the stack."""

from __future__ import annotations

import asyncio
import socket

from hermes_exec_agent.memory.database import examine
from tests.rigs.breadth import thorough

SECRET = "s3cret-of-the-database"


def test_nothing_is_amiss_where_no_memory_is_configured() -> None:
    assert asyncio.run(examine("")) == ""


def test_an_unreachable_database_is_told_in_one_line_without_its_password() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening, so nobody answers
        said = asyncio.run(examine(f"postgresql://hermes:{SECRET}@127.0.0.1:{held.getsockname()[1]}/hermes"))
    assert said.startswith("memory: the database cannot be reached")
    assert SECRET not in said
    assert "\n" not in said


def test_a_url_that_is_none_is_told_without_being_quoted() -> None:
    said = asyncio.run(examine(f"postgresql://hermes:{SECRET}@[::1/hermes"))
    assert said.startswith("memory:")
    assert SECRET not in said


@thorough
def test_a_database_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = asyncio.run(examine(f"postgresql://hermes:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/hermes"))
    assert said == "memory: the database does not answer within 5 s"
