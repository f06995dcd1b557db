"""The site of the documentation: it is built without network and without a warning, and every link in it works."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.rigs.breadth import thorough

ROOT = Path(__file__).parents[2]
API = {"terminal": 100, "sync": 150, "errors": 14, "orchestrator": 20, "backend": 100, "agent": 40}
"""Pages of the API reference, and how many names each has at least."""

pytestmark = [thorough, pytest.mark.slow, pytest.mark.timeout(300)]


class Page(HTMLParser):
    """The links, the anchors and the loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.names = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.names += "doc-heading" in values.get("class", "").split()
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in {"script", "img", "iframe"} and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preconnect"}:
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Page(path.read_text()) for path in folder.rglob("*.html") if path.name != "404.html"}


def test_every_page_has_its_place_in_the_site(site: dict[Path, Page]) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    (root,) = {path.parent for path in site if path.name == "index.html" and path.parent.name != "api"}
    assert {path.relative_to(root) for path in site} == written
    assert (root / "search/search_index.json").is_file()


def test_every_link_inside_of_the_site_works(site: dict[Path, Page]) -> None:
    dead: list[str] = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in site and anchor not in site[target].anchors):
                dead.append(f"{path.name}: {link}")
    assert dead == []


def test_the_site_loads_nothing_from_elsewhere(site: dict[Path, Page]) -> None:
    assert [source for page in site.values() for source in page.loaded if urlsplit(source).netloc] == []


@pytest.mark.parametrize("name", API)
def test_the_reference_has_the_public_names(site: dict[Path, Page], name: str) -> None:
    (page,) = [page for path, page in site.items() if path.parent.name == "api" and path.stem == name]
    assert page.names >= API[name]
