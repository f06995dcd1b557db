"""Debian's Chromium, headless, driven by Playwright; nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page

WIDE = (1280, 900)
NARROW = (360, 740)
_LIMIT_MS = 60_000
_PROBE = """() => {
  window.__broken = [];
  document.addEventListener("securitypolicyviolation", (event) => {
    window.__broken.push(`policy: ${event.violatedDirective} ${event.blockedURI}`);
  });
  window.addEventListener("error", (event) => window.__broken.push(`error: ${event.message}`));
  window.addEventListener("unhandledrejection", (event) => window.__broken.push(`rejection: ${event.reason}`));
  window.alert = window.confirm = window.prompt = () => window.__broken.push("dialog");
  window.open = () => window.__broken.push("window");
  window.__sockets = [];
  window.__pieces = [];
  const Plain = window.WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...given) {
      super(...given);
      window.__sockets.push(given[0]);
      this.addEventListener("message", (event) => {
        if (typeof event.data !== "string" && window.__keep) {
          const text = new TextDecoder("latin1").decode(new Uint8Array(event.data, 8));
          window.__pieces.push([Number(new DataView(event.data).getBigUint64(0)), text]);
        }
      });
    }
  };
}"""
"""Records what a page may not do, and the pieces of streams if ``__keep`` is set."""


@contextmanager
def open_chromium() -> Generator[Browser]:
    """The browser; tests that need it are skipped where it is missing."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no Chromium; ./dev test --provision installs it")
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-precise-memory-info"],
        )
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, link: str, size: tuple[int, int] = WIDE, **options: Any) -> Page:
    """A page of a fresh profile at a link, once it shows its first page."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    context.set_default_timeout(_LIMIT_MS)
    page = context.new_page()
    page.add_init_script(f"({_PROBE})()")
    page.goto(link)
    page.wait_for_selector("#nav a")
    return page


def show(page: Page, route: str, ready: str = "#body[aria-busy=false]") -> None:
    """Go to a page of the page, and wait until it is there."""
    page.evaluate("route => { location.hash = route; }", route)
    wait_for(page, f"location.hash === {json.dumps(route)}")
    page.wait_for_selector(ready)


def wait_for(page: Page, expression: str) -> None:
    """Wait until an expression is true; the page's policy forbids the driver's own way to do so."""
    give_up = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < give_up, expression
        page.wait_for_timeout(50)


def read_cookie(page: Page) -> str:
    """The cookies of the page's profile, as a header."""
    kept: list[Any] = page.context.cookies()
    return "; ".join(f"{each['name']}={each['value']}" for each in kept)


def broken(page: Page) -> list[str]:
    """What the page tried and may not, and errors of its scripts."""
    return list(page.evaluate("window.__broken"))
