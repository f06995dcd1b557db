"""Read skills from a git repository, without a checkout: one commit is fetched, and its files are read as objects.

No hook, filter, attribute, submodule or link of the repository takes effect, as nothing is checked out. The ``git``
program gets none of the user's settings, asks for nothing, and may use only the protocol of the address.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from hermes_exec.errors import HermesError, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMES = ("git+https", "git+ssh", "git+file")
_FETCH_S = 300.0
_READ_S = 60.0
_MAX_PACK = 256 << 20
"""Bytes of the fetched commit, compressed."""
_MAX_MEMORY = 2 << 30
_MAX_ENTRIES = 50_000
_MAX_LISTING = 16 << 20
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "https_proxy",
           "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")  # fmt: skip
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.askPass=", "core.fsmonitor=false", "core.bigFileThreshold=1m",
    "credential.helper=", "submodule.recurse=false", "fetch.recurseSubmodules=false", "fetch.unpackLimit=1",
    "pack.threads=1", "transfer.bundleURI=false", "gc.auto=0", "maintenance.auto=false", "protocol.version=2",
    "http.lowSpeedLimit=1000", "http.lowSpeedTime=30",
)  # fmt: skip
_LINE = re.compile(rb"(\d{6}) (blob|commit|tree) ([0-9a-f]+) +(\d+|-)\t(.+)", re.DOTALL)
_EXAMPLE = "git+https://HOST/PATH@REVISION#subdirectory=FOLDER"


@dataclass(frozen=True, slots=True)
class GitAddress:
    """An address of skills in a repository."""

    url: str
    """For the ``git`` program."""
    scheme: str
    """``https``, ``ssh`` or ``file``."""
    revision: str
    """A branch, tag or commit; empty for the repository's default branch."""
    subdirectory: str

    @classmethod
    def parse(cls, text: str) -> GitAddress:
        """Parse ``git+SCHEME://HOST/PATH[@REVISION][#subdirectory=FOLDER]``.

        Raises:
            UsageError: it has another form, or holds a password.
        """
        try:
            parts = urlsplit(text)
            password, _ = parts.password, parts.port
        except ValueError:
            raise UsageError("the address of the repository is invalid", remedy=_EXAMPLE) from None
        scheme = parts.scheme.removeprefix("git+")
        if parts.scheme not in SCHEMES:
            raise UsageError("a repository is read by https, ssh or file only", remedy=_EXAMPLE)
        if password is not None or (scheme != "ssh" and "@" in parts.netloc):
            raise UsageError(
                "the address holds a user or a password, which would be recorded",
                remedy="git+ssh://git@HOST/PATH with a key, or a clone of yours: skill import ./FOLDER",
            )
        path, _, revision = parts.path.rpartition("@") if "@" in parts.path else (parts.path, "", "")
        _check_parts(parts, path, revision, "@" in parts.path)
        url = f"{scheme}://{parts.netloc}{path}"
        return cls(url, scheme, revision, _parse_subdirectory(parts.fragment))

    @property
    def name(self) -> str:
        """The last name of its path."""
        path = self.subdirectory or self.url.rstrip("/").removesuffix(".git")
        return path.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The address for people, and for records."""
        return f"git+{self.url}" + (f"#subdirectory={self.subdirectory}" if self.subdirectory else "")


def _check_parts(parts: SplitResult, path: str, revision: str, has_revision: bool) -> None:  # noqa: FBT001  private
    if parts.query or not path.strip("/") or (parts.scheme != "git+file" and not parts.hostname):
        raise UsageError("the address of the repository is incomplete, or has a query", remedy=_EXAMPLE)
    if not parts.geturl().isprintable() or parts.netloc.startswith("-") or "/-" in path[:2]:
        raise UsageError("the address of the repository has an unsafe character", remedy=_EXAMPLE)
    if has_revision and (not _REVISION.fullmatch(revision) or ".." in revision or revision.endswith(("/", ".lock"))):
        raise UsageError(f"{revision[:80]!a} is not a branch, a tag or a commit", remedy=_EXAMPLE)


def _parse_subdirectory(fragment: str) -> str:
    if not fragment:
        return ""
    fields = parse_qs(fragment, keep_blank_values=True)
    folder = fields.get("subdirectory", [""])[0].strip("/")
    if set(fields) != {"subdirectory"} or not folder or any(part in {"", ".", ".."} for part in folder.split("/")):
        raise UsageError(f"#{unquote(fragment)[:80]!a} does not name a folder of the repository", remedy=_EXAMPLE)
    return folder


@dataclass(frozen=True, slots=True)
class GitEntry:
    """One entry of the fetched commit."""

    path: str
    mode: str
    """``100644``, ``100755``, ``120000`` for a link, or ``160000`` for a submodule."""
    identity: str
    size: int


class GitCommit:
    """One fetched commit of a repository."""

    def __init__(self, folder: Path, address: GitAddress) -> None:
        self._folder = folder
        self._address = address
        self.revision = ""
        """The identity of the commit."""

    def fetch(self) -> None:
        """Fetch the commit into the new folder.

        Raises:
            UsageError: there is no such repository or revision.
            Refused: it is too large.
            HermesError: ``git`` is missing, or the fetch failed.
        """
        wanted = self._address.revision or "HEAD"
        self._git(["init", "--quiet", "--bare", "--template=", str(self._folder)], seconds=_READ_S, inside=False)
        self._git(
            ["fetch", "--quiet", "--depth", "1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
             "--no-auto-maintenance", "--", self._address.url, f"+{wanted}:refs/heads/imported"],
            seconds=_FETCH_S,
        )  # fmt: skip
        found = self._git(["rev-parse", "--verify", "--quiet", "refs/heads/imported^{commit}"], seconds=_READ_S)
        self.revision = found.decode("ascii", "replace").strip()
        if not _COMMIT.fullmatch(self.revision):
            raise HermesError(f"{self._address.text}: git names no commit")

    def list_entries(self) -> list[GitEntry]:
        """Return every file, link and submodule in the folder of the address.

        Raises:
            UsageError: there is no such folder.
            Refused: there are too many.
        """
        below = f"{self._address.subdirectory}/" if self._address.subdirectory else ""
        listing = self._git(
            ["ls-tree", "-r", "-z", "--long", "--full-tree", self.revision, *(["--", below] if below else [])],
            seconds=_READ_S,
        )
        lines = [line for line in listing.split(b"\0") if line]
        if len(lines) > _MAX_ENTRIES:
            raise Refused(f"{self._address.text}: the commit has more than {_MAX_ENTRIES} files")
        if below and not lines:
            raise UsageError(f"{self._address.text}: the commit has no such folder")
        return [entry for entry in map(_parse_entry, lines) if entry.path.startswith(below)]

    def read_blobs(self, entries: Mapping[str, GitEntry]) -> dict[str, bytes]:
        """Return the bytes of files, whose sizes the caller has bounded."""
        wanted = list(entries.items())
        if not wanted:
            return {}
        lines = "".join(f"{entry.identity}\n" for _, entry in wanted).encode()
        bound = sum(entry.size + 200 for _, entry in wanted)
        data = self._git(["cat-file", "--batch"], seconds=_READ_S, stdin=lines, most=bound)
        found: dict[str, bytes] = {}
        position = 0
        for path, entry in wanted:
            end = data.find(b"\n", position)
            head = data[position:end].split()
            if end < 0 or head[:2] != [entry.identity.encode(), b"blob"] or int(head[2]) != entry.size:
                raise Refused(f"{self._address.text}: the object of {ascii(path)[:80]} is not the one in its list")
            found[path] = data[end + 1 : end + 1 + entry.size]
            position = end + 1 + entry.size + 1
        return found

    def _git(
        self, argv: list[str], *, seconds: float, stdin: bytes = b"", most: int = _MAX_LISTING, inside: bool = True
    ) -> bytes:
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        where = ["--git-dir", str(self._folder)] if inside else []
        # The shell sets the limits, which git and all of its helpers inherit.
        limits = f'ulimit -f {_MAX_PACK // 512}; ulimit -v {_MAX_MEMORY >> 10}; ulimit -c 0; exec git "$@"'
        command = ["/bin/sh", "-c", limits, "git", *settings, *where, *argv]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=_make_environment(self._address.scheme), start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            raise HermesError(f"git cannot be started: {error.strerror}") from error
        with process:
            out, complaint, ended = _communicate(process, stdin, most, seconds)
        if ended:
            raise Refused(f"{self._address.text}: {ended}", remedy="a smaller repository, or an archive of the skill")
        if process.returncode:
            raise self._explain(process.returncode, complaint)
        return out

    def _explain(self, code: int, complaint: bytes) -> HermesError:
        """Return the error of a git that failed; its last line has no credentials, as the address has none."""
        text = complaint.decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.startswith(("fatal:", "error:", "remote:", "sh:"))]
        why = ascii(lines[0].partition(": ")[2] if lines else f"exit code {code}")[1:-1][:200]
        if code == 127:  # of the shell
            return HermesError("there is no git program here", remedy="install git, or import an archive")
        if code in {128 + signal.SIGXFSZ, -signal.SIGXFSZ} or "File too large" in text or "signal 25" in text:
            return Refused(f"{self._address.text}: the commit has more than {_MAX_PACK >> 20} MiB")
        if "couldn't find remote ref" in text or "not our ref" in text:
            return UsageError(
                f"{self._address.text}: there is no revision {self._address.revision or 'HEAD'!r}",
                remedy="a branch, a tag or the whole identity of a commit",
            )
        return UsageError(f"{self._address.text} cannot be fetched: {why}")


def _make_environment(scheme: str) -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED if name in os.environ} | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=30 -oClearAllForwardings=yes -oForwardAgent=no",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ALLOW_PROTOCOL": scheme,
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "LC_ALL": "C",
    }


def _communicate(process: subprocess.Popen[bytes], stdin: bytes, most: int, seconds: float) -> tuple[bytes, bytes, str]:
    """Return the output and the messages of a process within bounds, and the reason if it was ended."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError("a process with pipes")
    complaint = bytearray()
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(process)

    feeding = threading.Thread(target=_feed, args=(process, stdin), daemon=True)
    reading = threading.Thread(target=_read_messages, args=(process.stderr, complaint), daemon=True)
    timer = threading.Timer(seconds, end)
    for each in (feeding, reading, timer):
        each.start()
    try:
        out = process.stdout.read(most + 1)
        if len(out) > most:
            _kill(process)
        process.wait()
    except BaseException:
        _kill(process)
        raise
    finally:
        timer.cancel()
    for thread in (feeding, reading):
        thread.join()
    if late.is_set():
        return out, bytes(complaint), f"git did not end within {seconds:g} s"
    return out, bytes(complaint), "git sends more than it may" if len(out) > most else ""


def _feed(process: subprocess.Popen[bytes], stdin: bytes) -> None:
    if process.stdin is None:
        return
    try:
        process.stdin.write(stdin)
        process.stdin.close()
    except OSError:  # git has ended
        return


def _read_messages(stream: IO[bytes], kept: bytearray) -> None:
    """Keep the first bytes of a stream, and read the others."""
    while part := os.read(stream.fileno(), 1 << 14):
        if len(kept) < 1 << 14:
            kept.extend(part)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End git and its helpers, which are in a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _parse_entry(line: bytes) -> GitEntry:
    match = _LINE.fullmatch(line)
    if match is None:
        raise HermesError("git lists the commit in a form that is not known")
    mode, _, identity, size, path = match.groups()
    return GitEntry(path.decode("utf-8", "surrogateescape"), mode.decode(), identity.decode(),
                    0 if size == b"-" else int(size))  # fmt: skip
