"""A skill that was granted hosts reaches those, through the proxy, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import socketserver
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Unsupported
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.egress import grant_hosts
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render.apparmor import profile_name, render
from hermes_exec_policies.render.bpf import read_shipped_program
from hermes_exec_policies.render.filter import build_filter
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import PERSON, report_of, tree_in

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
TEXT = """
import http.client, os, socket, urllib.parse

def run(a: int, b: int) -> dict:
    proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
    def through(port):
        made = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=30)
        made.set_tunnel('127.0.0.1', port)
        try:
            made.request('GET', '/')
            return made.getresponse().read().decode()
        except OSError as error:
            return str(error)
    def past(port):
        try:
            socket.create_connection(('127.0.0.1', port), 5)
            return 'connected'
        except OSError as error:
            return 'refused'
    return {'named': through(a), 'other': through(b), 'past': past(a), 'listen': listen()}

def listen():
    try:
        socket.create_server(('127.0.0.1', 0))
        return 'listens'
    except OSError as error:
        return error.errno
"""


class Answer(socketserver.BaseRequestHandler):
    """Says hello to whoever asks for something."""

    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")


@contextlib.contextmanager
def serving() -> Generator[int]:
    """Somebody at a port of this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def with_hosts(home: RegistryHome, folder: Path, *hosts: str) -> None:
    """A skill that was granted hosts."""
    tree = tree_in(folder, {"scripts/main.py": TEXT})
    report = replace(report_of(tree), grants={"hosts": list(hosts)})
    Registry(home).register(tree, report, load_policy("skill-run"), author=PERSON, kernel=_kernel())


def _kernel() -> str:
    import platform

    return platform.release()


@thorough
def test_named_hosts_are_reached_and_no_others(require: Require, home: RegistryHome, tmp_path: Path) -> None:
    require("bwrap", "makes the sandbox")
    with serving() as named, serving() as other:
        with_hosts(home, tmp_path, f"127.0.0.1:{named}")
        outcome = asyncio.run(runner.run(Registry(home), "add-numbers", {"a": named, "b": other}))
    found: Any = outcome.result
    assert found, (outcome.error, outcome.logs)
    assert (found["named"], found["past"]) == ("hello", "refused")
    assert "403" in found["other"]
    assert outcome.reached == (f"127.0.0.1:{named} 200", f"127.0.0.1:{other} 403")


def test_the_policy_with_hosts_is_proven_with_attempts_of_its_own(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    evidence = asyncio.run(prove(grant_hosts(load_policy("skill-run"), ["api.example.org"]), again=True))
    shown = {each.name for each in evidence.proof.judged if each.rule == "network.hosts"}
    assert {"egress-address", "egress-loopback", "egress-name", "network-tcp", "network-loopback"} <= shown


@thorough
def test_a_proxy_that_tries_what_was_not_named_fails_the_proof(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    policy = grant_hosts(load_policy("skill-run"), ["hermes-exec-canary.invalid"])  # what the attempt asks for
    with pytest.raises(Unsupported, match=r"network\.hosts"):
        asyncio.run(prove(policy, again=True))


def test_its_filter_ships_and_allows_no_more_than_two_families() -> None:
    wanted = build_filter(grant_hosts(load_policy("skill-validate"), ["a.example"]))
    assert wanted is not None
    families = {name: wanted.answer("socket", (number, 1, 0, 0, 0, 0)) for name, number in _FAMILIES.items()}
    assert families == {"unix": 0, "inet": 0, "inet6": 1, "netlink": 1, "packet": 1, "vsock": 1}
    assert read_shipped_program(wanted, "x86_64")


_FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16, "packet": 17, "vsock": 40}


def test_apparmors_profile_for_it_is_the_one_that_knows_its_sockets() -> None:
    policy = grant_hosts(load_policy("skill-validate"), ["a.example"])
    assert profile_name(policy) == "hermes-exec-skill-hosts"
    assert "network inet," in render(load_policy(policy.name))


def test_a_policy_without_hosts_is_the_same() -> None:
    assert grant_hosts(load_policy("skill-run"), ()) == load_policy("skill-run")
    assert _FAMILIES["inet"] == socket.AF_INET
