"""What a model may read without a person's word, in every place: its workspace, and there no secrets."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.tools.inside.sensitive import SECRETS, secret_of
from hermes_exec_agent.tools.tool import Approvals
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.conftest import require_part
from tests.tools.conftest import PLACES, Agent, Nobody, Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec.backend import Backend

pytestmark = pytest.mark.timeout(300)
PREPARE = """
d=$(mktemp -d /tmp/hermes-reading.XXXXXXXX) && mkdir -p "$d/work/sub" "$d/home/.ssh" && cd "$d/work" || exit
echo shown > sub/a.txt; echo private > "$d/home/.ssh/id_rsa"; echo beyond > "$d/out.txt"; echo TOKEN=private > .env
ln -s ../home/.ssh/id_rsa notes.txt; ln -s ../out.txt link.txt; ln -s .. up; ln "$d/home/.ssh/id_rsa" other.txt
mkfifo pipe; echo shown > .env.example; pwd -P
"""
OUTSIDE = ("../out.txt", "link.txt", "up/out.txt", "/proc/self/root{above}/out.txt", "sub/../../out.txt")
SECRET = ("notes.txt", "~/.ssh/id_rsa", "up/home/.ssh/id_rsa", "other.txt", ".env", "{above}/home/.ssh/id_rsa")
"""All of them are the same key, but one."""


async def prepared(agent: Agent) -> str:
    """Make a workspace and a home in the place; gives the folder above both."""
    workspace = agent.context.workspace
    made = await workspace.run(PREPARE, timeout=60)
    root = made.output.strip()
    assert root.endswith("/work"), made
    above = root.removesuffix("/work")
    workspace.root, workspace.start, workspace.home = root, root, f"{above}/home"
    return above


async def read(agent: Agent, above: str, person: Any, approvals: Approvals, *paths: str) -> list[dict[str, Any]]:
    agent.context.person, agent.context.approvals = person, approvals
    return [await agent("read_file", path=path.format(above=above)) for path in paths]


def kinds(answers: list[dict[str, Any]]) -> list[str]:
    return [each.get("error", {}).get("type", "ok") for each in answers]


async def checked(agent: Agent) -> None:
    """What is asked, what is denied, and what is free, with every answer and every setting."""
    above = await prepared(agent)
    try:
        no, yes = Somebody(says=False), Somebody()
        asking, denying, allowing = Approvals("ask"), Approvals("deny"), Approvals("allow")
        for mode in (asking, denying, allowing):  # the workspace is free
            assert (
                kinds(await read(agent, above, Nobody(), mode, "sub/a.txt", ".env.example", "up/work/sub/a.txt"))
                == ["ok"] * 3
            )
        tries = ((no, asking), (Nobody(), asking), (yes, denying))
        for person, mode in tries:
            answers = await read(agent, above, person, mode, *OUTSIDE, *SECRET, "/proc/self/environ")
            assert kinds(answers) == ["denied"] * len(answers), answers
            assert "private" not in json.dumps(answers).replace(above, "")
            assert "beyond" not in json.dumps(answers)
        assert not yes.asked
        asked = [line for _, line in no.asked]
        assert all(line.startswith(f"read {above}/out.txt") and "outside of" in line for line in asked[: len(OUTSIDE)])
        secret = asked[len(OUTSIDE) :][: len(SECRET)]
        assert all("a secret: " in line or "of a secret" in line for line in secret), secret
        assert all(f"read {above}/home/.ssh/id_rsa" in line for line in secret[:3]), secret
        answers = await read(agent, above, Nobody(), allowing, *OUTSIDE, *SECRET, "/proc/self/environ")
        assert kinds(answers) == ["ok"] * len(OUTSIDE) + ["denied"] * (len(SECRET) + 1), answers
        answers = await read(agent, above, yes, asking, *OUTSIDE, *SECRET)
        assert kinds(answers) == ["ok"] * len(answers)
        assert [each["output"] for each in answers][-3:] == ["1|private", "1|TOKEN=private", "1|private"]
        await searched(agent, above)
        await patched(agent)
    finally:
        agent.context.approvals = Approvals("allow")
        await agent("terminal", command=f"cd /; rm -rf {above}")


async def searched(agent: Agent, above: str) -> None:
    """Secrets are left out of a search, and named; a search elsewhere is asked for."""
    agent.context.person, agent.context.approvals = Nobody(), Approvals("ask")
    inside = await agent("search_files", pattern=".")
    assert inside["output"].splitlines() == [".env.example:1:shown", "sub/a.txt:1:shown"]
    assert "left out as secrets: .env, " in inside["note"]
    assert "other.txt" in inside["note"]
    assert "2 links lead out of the workspace" in inside["note"]
    away = await agent("search_files", pattern=".", path="up")
    assert away["error"]["type"] == "denied"
    agent.context.person = somebody = Somebody()
    away = await agent("search_files", pattern="b|private", path="..")
    assert sorted(away["output"].splitlines()) == ["out.txt:1:beyond", "work/link.txt:1:beyond"]
    agent.context.approvals = Approvals("allow")
    keys = await agent("search_files", pattern=".", path="~/.ssh")
    assert keys["output"] == "id_rsa:1:private"
    assert [line.split(",")[0] for _, line in somebody.asked] == [
        f"search {above}",
        f"search {above}/home/.ssh",
    ]


async def patched(agent: Agent) -> None:
    """A patch tells nothing of a secret, and a script's calls are no other way to one."""
    agent.context.person, agent.context.approvals = Nobody(), Approvals("allow")
    for old in ("private", "something else"):
        told = await agent("patch", mode="replace", path="notes.txt", old_string=old, new_string="x")
        assert told["error"]["type"] == "denied"
    script = (
        "try:\n print(tools.read_file('notes.txt'))\nexcept tools.ToolFailed as no:\n print(no.result['error']['type'])"
    )
    assert (await agent("execute_code", code=script))["output"] == "denied\n"


@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.slow
@pytest.mark.required
def test_reading_elsewhere_and_reading_secrets_needs_a_word_in_every_place(place: Callable[[], Backend]) -> None:
    async def here() -> None:
        async with agent_in(place()) as agent:
            await checked(agent)

    asyncio.run(here())


def test_a_folder_below_which_keys_were_mounted_is_known_by_where_they_are(tmp_path: Path) -> None:
    require_part("bwrap", "makes the sandbox")
    keys = tmp_path / ".ssh"
    keys.mkdir()
    (keys / "mine").write_text("private\n", encoding="utf-8")
    profile = BubblewrapProfile.model_validate({"binds": [f"{keys}:/tmp/data:ro", f"{keys / 'mine'}:/tmp/one:ro"]})

    async def here() -> list[dict[str, Any]]:
        async with agent_in(BubblewrapBackend(profile)) as agent:
            await agent.context.workspace.session()
            agent.context.workspace.root = "/tmp"
            return [
                await agent("read_file", path="/tmp/data/mine"),
                await agent("read_file", path="/tmp/one"),
                await agent("search_files", pattern="private", path="/tmp"),
                await agent("search_files", pattern="private", path="/tmp/data"),
            ]

    told = asyncio.run(here())
    assert kinds(told) == ["denied", "denied", "ok", "denied"], told
    assert "private" not in told[2].get("output", "")


def test_a_path_that_leads_elsewhere_between_two_pieces_is_refused(tmp_path: Path) -> None:
    from hermes_exec_agent.tools.reader import FileReader

    (tmp_path / "one").write_text("shown", encoding="utf-8")
    (tmp_path / "two").write_text("shown", encoding="utf-8")

    async def here() -> bytes:
        async with agent_in("local", mode="ask") as agent:
            await agent.context.workspace.session()
            agent.context.workspace.root = str(tmp_path)
            reader = FileReader("read_file", agent.context)
            assert await reader.read(str(tmp_path / "one")) == b"shown"
            (tmp_path / "two").replace(tmp_path / "one")
            return await reader.read(str(tmp_path / "one"))

    with pytest.raises(Exception, match="leads to another file than before"):
        asyncio.run(here())


def test_what_other_conversations_ran_is_not_read_unasked() -> None:
    async def here() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        async with agent_in("local") as one, agent_in("local", Somebody(says=False), mode="ask") as other:
            begun = await one("terminal", command="echo private", background=True)
            id = begun["session_id"]
            await one("process", action="wait", session_id=id)
            return (
                await one("process", action="log", session_id=id),
                await other("process", action="log", session_id=id),
                await other("process", action="list"),
            )

    own, foreign, listed = asyncio.run(here())
    assert own["output"] == "private"
    assert foreign["error"]["type"] in {"denied", "usage_error"}
    assert "private" not in json.dumps([foreign, listed])


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("/home/a/.ssh", True),
        ("/home/a/.SSH/config", True),
        ("/home/a/.sshx/config", False),
        ("/w/.env", True),
        ("/w/.env.local", True),
        ("/w/.env.example", False),
        ("/w/.env/lib/python3/os.py", False),
        ("/w/server.key", True),
        ("/etc/shadow-", True),
        ("/w/etc/shadow", False),
        ("/home/a/.docker/config.json", True),
        ("/home/a/.docker/contexts/meta.json", False),
        ("/proc/12/environ", True),
        ("/proc/12/task/13/environ", True),
        ("/proc/12/status", False),
        ("/run/docker.sock", True),
        ("/run/secrets/kubernetes.io/serviceaccount/token", True),
        ("/home/a/.mozilla/firefox/x.default/logins.json", True),
        ("/home/a/.local/state/hermes_exec/conversations.sqlite", True),
        ("/w/main.py", False),
        ("/", False),
    ],
)
def test_the_table_knows_secrets_by_their_paths(path: str, secret: bool) -> None:
    assert bool(secret_of(path)) is secret


def test_our_own_state_is_a_secret_wherever_it_is() -> None:
    assert secret_of("/app/data/x/conversations.sqlite", ["/app/data/x"])
    assert not secret_of("/app/data/xy", ["/app/data/x"])
    assert len({kind for kind, _ in SECRETS}) == len(SECRETS)
