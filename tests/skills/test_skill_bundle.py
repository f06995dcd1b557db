"""A version as a file: what is taken out of it is what was signed, or nothing is."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.cli.skill_evidence import verify_bundle
from hermes_exec_agent.skills.registry import bundle
from hermes_exec_agent.skills.registry.attestation import MATCHES, check_record, read_attestation
from hermes_exec_agent.skills.registry.content import ContentChanged
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.skills.registry.home import RegistryHome

Members = dict[str, tuple[bytes, int]]


@pytest.fixture
def file(home: RegistryHome, tmp_path: Path) -> Path:
    """A bundle of a version that another installation registered."""
    other = home_in(tmp_path / "other")
    version = registered(other, tmp_path / "made", files={"scripts/tool.sh": "echo\n"})
    bundle.write(Registry(other), version, tmp_path / "bundle.tar.gz")
    return tmp_path / "bundle.tar.gz"


def test_what_is_written_is_read(home: RegistryHome, file: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    found, tree = bundle.read(Registry(home), file, tmp_path / "in")
    assert (found.facts["name"], found.ours, len(found.signer)) == ("add-numbers", False, 64)
    assert tree.root == tmp_path / "in/add-numbers"
    assert (tree.root / "scripts/tool.sh").read_text() == "echo\n"
    assert tree.digest == found.facts["digest"]


def test_its_own_bundles_are_known(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "made")
    bundle.write(Registry(home), version, tmp_path / "own.tar.gz")
    (tmp_path / "in").mkdir()
    assert bundle.read(Registry(home), tmp_path / "own.tar.gz", tmp_path / "in")[0].ours


def rewritten(file: Path, change: Callable[[Members], object]) -> None:
    with tarfile.open(file) as archive:
        members: Members = {
            member.name: ((archive.extractfile(member) or io.BytesIO()).read(), member.mode) for member in archive
        }
    change(members)
    with tarfile.open(file, "w:gz") as archive:
        for name, (data, mode) in members.items():
            made = tarfile.TarInfo(name)
            made.size, made.mode = len(data), mode
            archive.addfile(made, io.BytesIO(data))


STATEMENT = "statement.dsse.json"


def edited(members: Members, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the statement, and leave its signature."""
    envelope = json.loads(members[STATEMENT][0])
    payload = json.loads(base64.b64decode(envelope["payload"]))
    change(payload)
    envelope["payload"] = base64.b64encode(json.dumps(payload, sort_keys=True).encode()).decode()
    members[STATEMENT] = (json.dumps(envelope).encode(), 0o644)


def with_fact(members: Members, name: str, value: object) -> None:
    edited(members, lambda payload: payload["predicate"]["record"].update({name: value}))


def with_envelope(members: Members, name: str, value: object) -> None:
    members[STATEMENT] = (json.dumps({**json.loads(members[STATEMENT][0]), name: value}).encode(), 0o644)


MAIN = "files/scripts/main.py"
CHANGES: dict[str, Callable[[Members], object]] = {
    "a byte": lambda members: members.update({MAIN: (members[MAIN][0] + b"#", 0o644)}),
    "a mode": lambda members: members.update({MAIN: (members[MAIN][0], 0o755)}),
    "a file more": lambda members: members.update({"files/scripts/x.py": (b"", 0o644)}),
    "a file less": lambda members: members.pop(MAIN),
    "a file beside": lambda members: members.update({"x": (b"", 0o644)}),
    "a way out": lambda members: members.update({"files/../../x": (b"", 0o644)}),
    "a path from the root": lambda members: members.update({"/etc/x": (b"", 0o644)}),
    "another evidence": lambda members: with_fact(members, "level", "person!"),
    "another name": lambda members: with_fact(members, "name", "../x"),
    "no statement": lambda members: members.pop(STATEMENT),
    "another subject": lambda members: edited(members, lambda payload: payload["subject"].pop()),
    "a statement that is a list": lambda members: members.update({STATEMENT: (b"[]", 0o644)}),
    "no signature": lambda members: with_envelope(members, "signatures", []),
    "a malformed signature": lambda members: with_envelope(members, "signatures", [{"keyid": "x", "sig": 5}]),
    "another key": lambda members: with_envelope(members, "publicKey", "00" * 32),
    "a malformed key": lambda members: with_envelope(members, "publicKey", "zz"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(home: RegistryHome, file: Path, tmp_path: Path, change: str) -> None:
    rewritten(file, CHANGES[change])
    (tmp_path / "in").mkdir()
    with pytest.raises(HermesError):
        bundle.read(Registry(home), file, tmp_path / "in")
    assert not (tmp_path / "x").exists()


def test_links_are_not_followed(home: RegistryHome, file: Path, tmp_path: Path) -> None:
    with tarfile.open(file, "w:gz") as archive:
        made = tarfile.TarInfo("files/scripts/main.py")
        made.type, made.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(made)
    with pytest.raises(Refused, match="not a bundle"):
        bundle.read(Registry(home), file, tmp_path / "in")


NO_BUNDLES = [b"", b"nonsense", gzip.compress(b"nonsense"), gzip.compress(b"\0" * 2048)]


# Named here: a compressed file carries the time, and every worker has to collect the same names.
@pytest.mark.parametrize("data", NO_BUNDLES, ids=["empty", "nonsense", "compressed nonsense", "zeros"])
def test_what_is_no_bundle_is_refused(home: RegistryHome, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Refused, match="not a bundle"):
        bundle.read(Registry(home), tmp_path / "x", tmp_path / "in")


def test_a_bomb_is_refused(home: RegistryHome, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x", "w:gz") as archive:
        made = tarfile.TarInfo(STATEMENT)
        made.size = 80 << 20
        archive.addfile(made, io.BytesIO(bytes(made.size)))
    with pytest.raises(Refused, match="not a bundle"):
        bundle.read(Registry(home), tmp_path / "x", tmp_path / "in")


def test_changed_files_are_not_exported(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "made")
    (home.content / version.digest / "scripts/main.py").write_text("evil = 1\n")
    for write in (bundle.write, bundle.write_flat):
        with pytest.raises(ContentChanged):
            write(Registry(home), version, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_and_a_flat_copy_says_what_it_is(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "made")
    for number, write in enumerate((bundle.write, bundle.write_flat)):
        path = tmp_path / f"out{number}"
        write(Registry(home), version, path)
        with pytest.raises(UsageError, match="there already"):
            write(Registry(home), version, path)
        with pytest.raises(UsageError, match="/none: there is no such folder"):
            write(Registry(home), version, Path("/none/x"))
    flat = (tmp_path / "out1").read_text()
    assert flat.startswith(f"# add-numbers 1, SHA-256 {version.digest}: a copy, which is not what runs\n")
    assert "return a + b" in flat


def test_a_stranger_verifies_a_bundle_offline(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nothing"))
    assert verify_bundle(file) == 0
    shown = capsys.readouterr().out
    signer = Registry(home_in(tmp_path / "other")).signer
    assert f"valid, by the key {signer[:16]}" in shown
    assert shown.count(": matches") == 2
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(Refused, match="not 00"):
        verify_bundle(file, key="00")


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_documented_program_verifies_a_bundle_without_this_project(file: Path, home: RegistryHome) -> None:
    (program,) = re.findall("```python\n(.*?)```", (DOCS / "evidence.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-I", "-c", program, file], capture_output=True, text=True, check=False)
    signer = Registry(home_in(file.parent / "other")).signer
    assert (done.returncode, done.stdout) == (0, f"signed by {signer}\n")
    rewritten(file, CHANGES["a byte"])
    assert subprocess.run([sys.executable, "-I", "-c", program, file], capture_output=True, check=False).returncode


def test_the_documented_example_is_exact_to_the_byte() -> None:
    text = (DOCS / "evidence.md").read_text()
    data = (DOCS / "evidence-example.dsse.json").read_bytes()
    found, envelope = read_attestation(data, "example"), json.loads(data)
    payload = base64.b64decode(envelope["payload"])
    (content,) = re.findall("```\n(---.*?)```", text, re.DOTALL)
    assert found.files == {"SKILL.md": (0o644, 140, hashlib.sha256(content.encode()).hexdigest())}
    values = (
        *(each for *_, each in found.files.values()), hashlib.sha256(payload).hexdigest(), f"{len(payload)} bytes",
        envelope["publicKey"], found.signer, envelope["signatures"][0]["sig"],
    )  # fmt: skip
    assert [each for each in values if each not in text] == []
    assert check_record(found.record, found.record["digest"])["policy"] == MATCHES


FULL = """
import pathlib, resource, sys
from hermes_exec_agent.skills.registry import bundle
from hermes_exec_agent.skills.registry.home import RegistryHome
from hermes_exec_agent.skills.registry.registry import Registry
folder, keys, target = map(pathlib.Path, sys.argv[1:])
registry = Registry(RegistryHome(folder, keys))
version = registry.version("add-numbers")
resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))  # more than each of its files
bundle.write_flat(registry, version, target)
"""


def test_nothing_is_left_of_a_file_that_could_not_be_written(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path / "1")
    file = tmp_path / "flat.py"
    words = [sys.executable, "-c", FULL, str(home.folder), str(home.keys), str(file)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, "File too large" in done.stderr) == (1, True), done.stderr
    assert not file.exists()
