"""What an object shows of itself: ``repr``, and tables in notebooks. Neither has secrets, and HTML is escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.formatters import DisplayFormatter

import hermes_exec
import hermes_exec.sync
from hermes_exec import Orchestrator
from hermes_exec.notebook import MOST_ROWS, MOST_TEXT, format_table, format_text
from hermes_exec.result import Result
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import LocalProfile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
ATTACK = "<script>alert('&')</script>\x1b[2J"


def html(value: Any) -> str:
    """What a notebook shows."""
    formatter: Any = DisplayFormatter()
    data, _ = formatter.format(value)
    shown: str = data["text/html"]
    return shown


async def test_every_object_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sk-secret")
    secrets: Any = ["TOKEN"]
    profile = LocalProfile(secrets=secrets, env={"OTHER": "value"})
    async with hermes_exec.open(profile, audit=False) as terminal:
        assert repr(terminal) == "<Terminal local, open>"
        async with terminal.session("mine") as session, terminal.pty("sleep 100", name="screen") as pty:
            job = await terminal.start("sleep 100")
            async with terminal.forward(0, 9) as forward, terminal.stream("sleep 100") as stream:
                shown = {repr(each) for each in (session, pty, job, forward, stream, terminal.files, LocalBackend())}
                assert shown >= {
                    "<Session mine in local>",
                    "<Pty screen>",
                    f"<Job {job.id}>",
                    "<Stream in local, running>",
                    "<Files of local>",
                    "<LocalBackend local>",
                }
                assert any(re.fullmatch(r"<Forward 127.0.0.1:\d+ -> 127.0.0.1:9>", each) for each in shown)
                assert not any(ADDRESS.search(each) or "sk-secret" in each for each in shown)
            await job.kill(0)
        assert "sk-secret" not in repr(profile)
    assert repr(terminal) == "<Terminal local, closed>"
    assert repr(Orchestrator({"a": "local"})) == "<Orchestrator new, pools: a>"


def test_blocking_objects_say_the_same() -> None:
    with hermes_exec.sync.open("local", audit=False) as terminal:
        assert repr(terminal) == "<Terminal local, open>"
        assert repr(terminal.session("mine")) == "<Session mine in local>"
        assert repr(terminal.files) == "<Files of local>"


def test_a_result_shows_what_is_unusual_and_the_beginning_of_outputs() -> None:
    assert repr(Result(0)) == "Result(exit_code=0, stdout=b'', stderr=b'')"
    shown = repr(Result(None, signal=9, stdout=b"x" * 1_000_000, duration_s=1.23456))
    assert shown.startswith("Result(exit_code=None, signal=9, stdout=b'xxx")
    assert shown.endswith("… (1,000,000 bytes), stderr=b'', duration_s=1.23)")
    assert len(shown) < 300


def test_the_version_is_the_distributions() -> None:
    assert re.fullmatch(r"\d+\.\d+.*", hermes_exec.__version__)


def test_output_in_a_notebook_is_escaped() -> None:
    shown = html(Result(3, stdout=ATTACK.encode(), stderr=ATTACK.encode(), note=ATTACK, duration_s=0.5))
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert shown.count("&lt;script&gt;") == 3
    assert "exit code 3" in shown


def test_long_output_in_a_notebook_is_cut() -> None:
    assert len(html(Result(0, stdout=b"x" * 10_000_000))) < 2 * MOST_TEXT
    assert "characters left out" in format_text("x" * (MOST_TEXT + 1))


def test_a_long_table_is_cut() -> None:
    assert format_table(("a",), [("b",)] * (MOST_ROWS + 5)).endswith("<p>… and 5 more</p>")


def test_lists_of_files_and_jobs_are_tables(tmp_path: Path) -> None:
    (tmp_path / "<b>bold\n").write_text("text")
    (tmp_path / "link").symlink_to("<i>")
    with hermes_exec.sync.open("local", audit=False) as terminal:
        shown = html(terminal.files.list(tmp_path))
        assert shown.count("<tr>") == 3
        assert "&lt;b&gt;bold" in shown
        assert "-&gt; &lt;i&gt;" in shown
        assert "<b>" not in shown
        job = terminal.start("echo '<u>'", name="<em>")
        job.wait()
        shown = html(terminal.jobs())
        assert "&lt;em&gt;" in shown
        assert "<u>" not in shown
        assert job.id in shown
        job.prune()
