"""Live terminals: offsets across restarts, bounded memory, and input only where it is allowed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.browser import broken, new_page, read_cookie, show, wait_for
from tests.rigs.web_view import View, start_job

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.cli.conftest import Cli

leave_out("it starts a browser")

_TAB_MOST = 300 << 20
_SERVER_GROWTH = 60 << 20
_SHELL = """
import asyncio, sys
import hermes_exec
async def main():
    async with hermes_exec.open("local") as terminal:
        pty = await terminal.pty(["bash", "--norc"], name="kept", keep_s=600, env={"PS1": "ready> "})
        await pty.detach()
asyncio.run(main())
"""


_LINES = ("x" * 79 + "\n") * 1000
_PASTE = """text => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const paste = new ClipboardEvent("paste", {bubbles: true, clipboardData});
  document.querySelector(".xterm-helper-textarea").dispatchEvent(paste);
}"""


def open_terminal_page(browser: Browser, view: View, job: str, *, from_start: bool = False) -> Page:
    page = new_page(browser, view.link)
    page.evaluate("window.__keep = true")
    link = page.locator(f"a[data-key=open-{job}]")
    link.click()
    page.wait_for_selector(".xterm-rows")
    page.wait_for_selector("#status .badge[data-state=good]")
    if from_start:
        page.get_by_role("button", name="Show from the start").click()
    return page


def assemble(page: Page) -> bytes:
    """The bytes of a stream by their offsets; each has to come once and follow the one before."""
    pieces = page.evaluate("window.__pieces")
    data = b""
    start = None
    for after, text in pieces:
        piece = text.encode("latin-1", "replace") if text.isascii() else text.encode("cp1252")
        start = after - len(piece) if start is None else start
        assert after - len(piece) == start + len(data), (after, len(piece), start, len(data))
        data += piece
    return data


def test_a_restart_loses_and_repeats_no_byte(browser: Browser, machine: Cli) -> None:
    view = View.start(machine)
    job = start_job(machine, "i=0; while [ ! -e stop ]; do i=$((i+1)); echo line $i; sleep 0.005; done; echo the end")
    page = open_terminal_page(browser, view, job)
    for _ in range(2):
        wait_for(page, "window.__pieces.length > 20")
        seen = page.evaluate("window.__sockets.length")
        view.kill()
        page.wait_for_selector("#status .badge[data-state=wait]")
        view.restart()
        wait_for(page, f"window.__sockets.length > {seen}")
        page.wait_for_selector("#status .badge[data-state=good]")
    (machine.cwd / "stop").touch()
    wait_for(page, "document.querySelector('#status').innerText.includes('exit')")
    assert assemble(page) == machine("logs", job).stdout
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('the end')")
    assert broken(page) == []
    page.context.close()
    assert view.stop() == 0


def test_a_large_stream_keeps_the_tab_and_the_server_small(browser: Browser, machine: Cli) -> None:
    view = View.start(machine)
    total = 50_000_000
    job = start_job(machine, f"yes '0123456789 some text of a line' | head -c {total}; sleep 600")
    wait_until(lambda: f"{total:,} B" in machine("jobs").stdout.decode())
    page = new_page(browser, view.link)
    before = resident(view.child.pid)
    page.locator(f"a[data-key=open-{job}]").click()
    page.get_by_role("button", name="Show from the start").click()
    most_tab = most_server = 0
    done = 0
    while done < total:
        done = int(page.evaluate("document.querySelector('.tty').dataset.offset || '0'") or 0)
        most_tab = max(most_tab, *map(resident, renderers(browser)))
        most_server = max(most_server, resident(view.child.pid))
        page.wait_for_timeout(100)
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('some text of a line')")
    most_tab = max(most_tab, *map(resident, renderers(browser)))
    print(f"tab {most_tab >> 20} MiB, server {before >> 20} -> {most_server >> 20} MiB")
    assert most_tab < _TAB_MOST
    assert most_server - before < _SERVER_GROWTH
    page.context.close()
    view.stop()


def renderers(browser: Browser) -> list[int]:
    session: Any = browser.new_browser_cdp_session()
    found: list[dict[str, Any]] = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return [int(each["id"]) for each in found if each["type"] == "renderer"]


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) << 10 if found else 0


def test_a_kept_shell_takes_what_is_typed_and_is_ended_after_a_question(browser: Browser, machine: Cli) -> None:
    subprocess.run([sys.executable, "-c", _SHELL], check=True, env=machine.env, cwd=machine.cwd)
    view = View.start(machine, "--allow-input")
    page = open_terminal_page(browser, view, "kept")
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('ready>')")
    page.keyboard.type("echo not $((1+1))\n")  # nothing is typed before it is switched on
    page.get_by_label("Type into it").check()
    page.keyboard.type("echo is $((40+2))\n")
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('is 42')")
    assert "not" not in page.evaluate("document.querySelector('.xterm-rows').innerText")
    page.keyboard.press("Shift+Escape")
    assert page.evaluate("document.activeElement.id") == "leave"
    view.kill()
    page.wait_for_selector("#status .badge[data-state=wait]")
    view.restart()
    page.wait_for_selector("#status .badge[data-state=good]")
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('is 42')")  # the view goes on
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("echo ready $((6*7)); head -c $((79999+1)) | wc -c\n")
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('ready 42')")
    page.evaluate(_PASTE, _LINES)
    wait_for(page, "document.querySelector('.xterm-rows').innerText.includes('80000')")  # more than one message holds
    page.get_by_role("button", name="End it").click()
    page.get_by_role("dialog").get_by_role("button", name="End it").click()
    wait_for(page, "document.querySelector('#status .badge').dataset.state !== 'good'")
    job = start_job(machine, "sleep 600")
    show(page, "#/terminals")
    page.locator(f"a[data-key=open-{job}]").click()
    page.wait_for_selector("#status .badge[data-state=good]")
    assert view.call("/api/session/end", {}, cookie=read_cookie(page))[0] == 200  # in another tab
    page.get_by_text("The session has ended").wait_for()
    assert page.locator(".xterm-rows").count() == 0
    assert broken(page) == []
    page.context.close()
    view.stop()
