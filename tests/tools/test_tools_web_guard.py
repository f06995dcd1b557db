"""Pages are fetched from the public web alone, whatever a URL, a redirect or a name says, within bounds."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.tools.web.fetch import AddressDenied, Page, PageFetcher, PageUnavailable
from hermes_exec_agent.tools.web.text import decode
from hermes_exec_policies.egress.proxy import is_public
from tests.rigs.web_pages import WebPages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

ARTICLE = "<html><head><title>Bees</title></head><body><p>Bees fly.</p></body></html>"


def is_here(address: str) -> bool:
    """Whether an address is the rig's or public; 127.0.0.2 and all others of this machine are private as ever."""
    return address == "127.0.0.1" or is_public(address)


def on_pages(do: Callable[[WebPages, WebPages], Coroutine[Any, Any, Any]]) -> Any:
    """Run ``do`` with a server that the guard allows and a private one."""

    async def done() -> Any:
        async with WebPages() as pages, WebPages("127.0.0.2") as private:
            private.add("/secret", "the secret")
            return await do(pages, private)

    return asyncio.run(done())


def fetcher(*rigs: WebPages, **options: Any) -> PageFetcher:
    return PageFetcher(ports=[each.port for each in rigs], is_allowed=is_here, **options)


async def names(host: str, port: int) -> Sequence[str]:
    return {"pages.test": ["127.0.0.1"], "inside.test": ["127.0.0.2"], "both.test": ["127.0.0.1", "127.0.0.2"]}[host]


def test_a_page_comes_with_its_type_and_charset() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        page = await fetcher(pages).fetch(pages.add("/bees", ARTICLE) + "#wings")
        assert page == Page(f"{pages.url}/bees", ARTICLE.encode(), "text/html", "utf-8")

    on_pages(do)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/", "http://0x7f000001/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/", "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://100.64.0.1/",
        "http://192.168.0.1/", "http://224.0.0.1/", "http://[fe80::1]/", "http://168.63.129.16/", "http://0.0.0.0/",
        "http://[64:ff9b::7f00:1]/", "http://[::]/",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_public_web_are_denied(url: str) -> None:
    with pytest.raises(AddressDenied, match="not an address of the public web"):
        asyncio.run(PageFetcher().fetch(url))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/passwd", "not an address of the web"),
        ("ftp://example.org/", "not an address of the web"),
        ("gopher://example.org/", "not an address of the web"),
        ("example.org", "not an address of the web"),
        ("http:///x", "not an address of the web"),
        ("http://user:pass@example.org/", "a user or a password"),
        ("http://example.org:22/", "port 22 is not allowed"),
        ("https://example.org:8443/", "port 8443 is not allowed"),
    ],
)
def test_urls_that_are_not_of_the_web_are_denied_before_anything_is_resolved(url: str, says: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise AssertionError(host)

    with pytest.raises(AddressDenied, match=says):
        asyncio.run(PageFetcher(resolve=resolve).fetch(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1/",
        "http://2130706433/",
        "http://0/",
        "http://[::1",
        "http://a:b:c/",
        "http://exa mple.org/",
        "http://\x00/",
        "http://example.org:99999/",
    ],
)
def test_what_is_no_url_is_an_error_of_ours(url: str) -> None:
    with pytest.raises((AddressDenied, PageUnavailable)):
        asyncio.run(PageFetcher(limit_s=2).fetch(url))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(status: int) -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        pages.add("/bees", ARTICLE)
        page = await fetcher(pages).fetch(pages.redirect("/old", "/bees", status))
        assert (page.url, page.content) == (f"{pages.url}/bees", ARTICLE.encode())

    on_pages(do)


def test_a_redirect_to_a_private_address_is_denied_and_nothing_is_sent_there() -> None:
    async def do(pages: WebPages, private: WebPages) -> None:
        allowed = fetcher(pages, private)
        for target in (f"{private.url}/secret", f"http://[::ffff:127.0.0.2]:{private.port}/secret"):
            with pytest.raises(AddressDenied, match="not an address of the public web"):
                await allowed.fetch(pages.redirect("/away", target))
        with pytest.raises(AddressDenied, match="not an address of the web"):
            await allowed.fetch(pages.redirect("/file", "file:///etc/passwd"))
        with pytest.raises(AddressDenied, match="port 6379"):
            await allowed.fetch(pages.redirect("/port", "http://127.0.0.1:6379/"))
        assert private.requests == []

    on_pages(do)


def test_the_sixth_redirect_is_too_many() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match="more than 5 redirects"):
            await fetcher(pages).fetch(pages.redirect("/round", "/round"))
        assert len(pages.requests) == 6

    on_pages(do)


@pytest.mark.parametrize("host", ["inside.test", "both.test"])
def test_a_name_with_a_private_address_is_denied(host: str) -> None:
    async def do(pages: WebPages, private: WebPages) -> None:
        with pytest.raises(AddressDenied, match=f"{host} is at 127.0.0.2"):
            await fetcher(pages, private, resolve=names).fetch(f"http://{host}:{private.port}/secret")
        assert private.requests == []

    on_pages(do)


def test_a_name_that_resolves_to_another_address_the_next_time_reaches_the_checked_one() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebind(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def do(pages: WebPages, private: WebPages) -> None:
        pages.add("/secret", "harmless")
        page = await fetcher(pages, resolve=rebind).fetch(f"http://rebind.test:{pages.port}/secret")
        assert page.content == b"harmless"
        assert private.requests == []
        assert len(answers) == 1  # one answer was asked for, and it was used

    on_pages(do)


def test_a_name_that_moves_inside_between_two_redirects_is_denied() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebind(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def do(pages: WebPages, private: WebPages) -> None:
        pages.redirect("/first", "/secret")
        with pytest.raises(AddressDenied, match=r"127\.0\.0\.2"):
            await fetcher(pages, resolve=rebind).fetch(f"http://rebind.test:{pages.port}/first")
        assert private.requests == []

    on_pages(do)


def test_the_environments_proxy_and_netrc_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    async def do(pages: WebPages, private: WebPages) -> None:
        monkeypatch.setenv("HTTP_PROXY", private.url)
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hidden\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        await fetcher(pages).fetch(pages.add("/bees", ARTICLE, Set_Cookie="a=b"))
        await fetcher(pages).fetch(f"{pages.url}/bees")
        assert private.requests == []
        assert not any({"Authorization", "Cookie", "Referer"} & set(each.headers) for each in pages.requests)

    on_pages(do)


def test_a_host_that_does_not_exist_is_an_error_of_ours() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(PageUnavailable, match="Name or service not known"):
        asyncio.run(PageFetcher(resolve=resolve).fetch("http://nowhere.test/"))


def test_a_compressed_page_is_decompressed() -> None:
    raw = zlib.compressobj(wbits=-15)

    async def do(pages: WebPages, _: WebPages) -> None:
        bodies = {
            "/gzip": (gzip.compress(b"text", mtime=0), "gzip"),
            "/zlib": (zlib.compress(b"text"), "deflate"),
            "/raw": (raw.compress(b"text") + raw.flush(), "deflate"),
        }
        for path, (body, encoding) in bodies.items():
            url = pages.add(path, body, "text/plain", Content_Encoding=encoding)
            assert (await fetcher(pages).fetch(url)).content == b"text"

    on_pages(do)


def test_a_bomb_is_not_unpacked() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match="longer than 10,000,000 bytes"):
            await fetcher(pages).fetch(pages.bomb("/bomb", 200))
        inner = gzip.compress(gzip.compress(bytes(50 << 20), mtime=0))
        with pytest.raises(PageUnavailable, match="content encoding"):
            await fetcher(pages).fetch(pages.add("/two", inner, "text/plain", Content_Encoding="gzip, gzip"))

    import tracemalloc

    tracemalloc.start()
    on_pages(do)
    assert tracemalloc.get_traced_memory()[1] < 300 << 20  # of which the rig compresses 200 MB
    tracemalloc.stop()


@pytest.mark.parametrize("body", [b"\x1f\x8bno gzip at all", gzip.compress(b"text" * 999, mtime=0)[:-20]])
def test_damaged_compression_is_an_error_of_ours(body: bytes) -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match="compression is damaged"):
            await fetcher(pages).fetch(pages.add("/broken", body, "text/plain", Content_Encoding="gzip"))

    on_pages(do)


def test_a_page_without_an_end_is_left_at_the_bound() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match="longer than 100,000 bytes"):
            await fetcher(pages, max_bytes=100_000).fetch(pages.endless("/endless", 0))

    on_pages(do)


def test_a_page_that_drips_is_left_at_the_time_limit() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match=r"not complete within 0\.3 s"):
            await fetcher(pages, limit_s=0.3).fetch(pages.endless("/drip", 0.05))

    on_pages(do)


def test_an_error_of_the_server_is_named() -> None:
    async def do(pages: WebPages, _: WebPages) -> None:
        with pytest.raises(PageUnavailable, match="the server answered 404"):
            await fetcher(pages).fetch(f"{pages.url}/nothing")

    on_pages(do)


@pytest.mark.parametrize(
    ("content", "charset", "text"),
    [
        ("žluť".encode("cp1250"), "windows-1250", "žluť"),
        ("žluť".encode(), "", "žluť"),
        (b"\xef\xbb\xbfmarked", "shift_jis", "marked"),
        ("日本".encode("shift_jis"), "Shift_JIS", "日本"),
        ("café".encode("latin-1"), "utf-8", "caf�"),
        ("café".encode("latin-1"), "", "café"),
        ("café".encode("latin-1"), "no-such-charset", "café"),
        (b"plain", "zlib", "plain"),
        (b"\\u0041", "unicode_escape", "\\u0041"),
        (b"a" * 9, "punycode", "a" * 9),
        ("<meta charset=koi8-r>да".encode("koi8-r"), "", "<meta charset=koi8-r>да"),
        ("<meta charset=utf-8>caf\xe9".encode("latin-1"), "iso-8859-1", "<meta charset=utf-8>café"),
    ],
)
def test_bytes_become_text_as_in_a_browser(content: bytes, charset: str, text: str) -> None:
    assert decode(content, charset, is_html=True) == text
