"""Clean environments with the wheel and one extra each, and the cheapest real form of every command."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
UNREACHABLE = 125
"""The exit code where the packages are there and the place is not."""


@dataclass(frozen=True, slots=True)
class Form:
    """One command line, the extras without which it does nothing, and how it ends with them."""

    words: str
    needs: tuple[str, ...] = ()
    code: int = 0
    env: dict[str, str] = field(default_factory=dict[str, str])
    serves: bool = False
    """It runs until it is interrupted, and says on standard output that it is ready."""
    terminal: bytes | None = None
    """What is typed, for a command that needs a terminal."""


SKILLS = ("skills",)
# In the order in which they are run, in one home folder: some use what others left.
FORMS = (
    Form("run --on local -- true"),
    Form("run --detach --name kept -- echo hi"),
    Form("run --on ssh://nobody@127.0.0.1:1 -- true", ("ssh",), UNREACHABLE),
    Form("run --on docker:python:3.11 -- true", ("docker",), UNREACHABLE),
    Form("run --on docker:python:3.11+ssh://nobody@127.0.0.1:1 -- true", ("ssh",), UNREACHABLE),
    Form("run --on modal -- true", ("modal",), UNREACHABLE),
    Form("run --on daytona -- true", ("daytona",), UNREACHABLE),
    Form("--quiet --config own.conf run --on built -- true", ("singularity",), UNREACHABLE),
    Form("run --on bubblewrap -- true"),
    Form("shell", terminal=b"exit\n"),
    Form("cp file local:HOME/copied"),
    Form("sync my-skill local:HOME/copy"),
    Form("logs --follow kept"),
    Form("attach kept"),
    Form("kill kept"),
    Form("jobs"),
    Form("jobs --prune"),
    Form("top --json"),
    Form("top", ("top",), env={"TERM": "xterm-256color"}, terminal=b"q"),
    Form("forward 9 --json --on local", serves=True),
    Form("backends --json"),
    Form("doctor --json"),
    Form("doctor local"),
    Form("profile init"),
    Form("profile list"),
    Form("profile show local"),
    Form("profile check"),
    Form("profile trust own.conf --yes"),
    Form("profile distrust own.conf"),
    Form("env local"),
    Form("config"),
    Form("help run"),
    Form("version"),
    Form("update --check", (), UNREACHABLE, env={"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}),
    Form("completion bash"),
    Form("policy list"),
    Form("policy show workspace"),
    Form("policy explain workspace"),
    Form("policy diff workspace skill-validate"),
    Form("policy render workspace"),
    Form("policy check"),
    Form("policy prove bubblewrap --policy ./own.toml", ("bubblewrap",)),
    Form("chat -q hi --replay demo"),
    Form("chat --replay demo", ("chat",)),
    Form("chat -q hi", ("agent",), 125, env={"OPENAI_API_KEY": "none", "DEFAULT_MODEL": "none",
                                             "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}),
    Form("conversations list"),
    Form("conversations show last"),
    Form("conversations search hi"),
    Form("conversations export last"),
    Form("conversations rollback last"),
    Form("serve --port 0 --json", ("server",), serves=True),
    Form("serve --port 0 --json", ("server", "memory"), env={"MEMORY_DB_URL": "postgresql://127.0.0.1:1/"},
         serves=True),
    Form("web --port 0 --json", ("web-view",), serves=True),
    Form("mcp list"),
    Form("mcp add x -- true", ("mcp",), UNREACHABLE),
    Form("mcp test x", ("mcp",), 2),
    Form("mcp remove x", (), 2),
    Form("mcp login x", ("mcp",), 2),
    Form("mcp logout x", ("mcp",), 0),
    Form("mcp serve --http --port 0 --json", ("mcp",), serves=True),
    Form("log"),
    Form("bench local --runs 1"),
    Form("demo --offline --on local"),
    Form("skill check my-skill", SKILLS),
    Form("skill add my-skill", SKILLS),
    Form('skill run my-skill --self-tested --arguments {"a":1,"b":2}', SKILLS),
    Form("skill list", SKILLS),
    Form("skill show my-skill", SKILLS),
    Form("skill history my-skill", SKILLS),
    Form("skill diff my-skill 1", SKILLS),
    Form("skill rollback my-skill 1", SKILLS),
    Form("skill pin my-skill", SKILLS),
    Form("skill unpin my-skill", SKILLS),
    Form("skill release my-skill", SKILLS, 2),
    Form("skill verify", SKILLS),
    Form("skill prove --changed", SKILLS),
    Form("skill export --bundle exported my-skill", SKILLS),
    Form("skill import exported", SKILLS),
    Form("skill new my-guide"),
    Form("skill import ./my-skill", SKILLS),
    Form("skill edit my-skill", SKILLS, env={"EDITOR": "true"}),
    Form("skill search skill", SKILLS),
    Form("skill trust my-skill", SKILLS),
    Form("skill grant my-skill --host example.org", SKILLS),
    Form("skill script my-skill scripts/main.py", SKILLS),
    Form("learn outcomes"),
    Form("learn outcome last good"),
    Form("audit run"),
    Form("audit show"),
    Form("memory show"),
    Form("memory history"),
    Form("memory edit", env={"EDITOR": "true"}),
    Form("memory forget nothing", code=2),
    Form("memory export"),
    Form("memory restore 1", code=2),
    Form("memory rebuild"),
    Form("memory notes"),
    Form("user show"),
    Form("user history"),
    Form("user add tea"),
    Form("user ask tea"),
    Form("user close c1"),
    Form("user export"),
    Form("memory search tests", code=2),
    Form("memory doctor"),
    Form("memory reembed", code=2),
    Form("user learn last", code=2),
    Form("learn versions"),
    Form("learn measure none.jsonl --entry x", (), 2),
    Form("proposals list"),
    Form("proposals changes"),
    *(Form(f"proposals {each} 99", (), 2) for each in ("show", "try", "accept", "reject", "revert")),
    Form("review run"),
    Form("review status"),
    Form("memory undo", (), 2),
    Form("curator run", SKILLS),
    Form("curator run --apply", SKILLS),
    Form("curator status", SKILLS),
    Form("curator restore", SKILLS, 2),
    Form("cron list"),
    Form("cron add @daily --command true --name daily", ("cron",)),
    Form("cron history"),
    Form("cron next"),
    Form("cron tick"),
    *(Form(f"cron {each} nothing", (), 2) for each in ("show", "run", "approve", "pause", "resume", "edit", "remove")),
    Form("cron daemon --json", serves=True),
    Form("gateway run", code=2),
    Form("gateway status"),
    Form("gateway pair WRONGWRO --as owner", code=2),
    Form("gateway people"),
    Form("gateway send owner hi", code=2),
    Form("gateway outbox"),
    Form("batch check tasks.jsonl"),
    Form("batch run tasks.jsonl --agent oracle --into batch"),
    Form("batch resume batch"),
    Form("batch status batch"),
    Form("batch report batch"),
    Form("batch export batch"),
    Form("batch regrade batch --reward math:isfinite"),
    Form("batch cancel batch"),
    Form("batch shard batch --shard s --epoch 1 --slots 1"),
    Form("rl serve tasks.jsonl", ("agent",), 2, env={"OPENAI_API_KEY": "none", "DEFAULT_MODEL": "none",
                                                          "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
                                                          "LLM_PROVIDER": "none"}),
    Form("rl train -- true", code=2),
    Form("rl status none", code=2),
    Form("skill archive my-skill", SKILLS),
    Form("skill restore my-skill", SKILLS),
    Form("skill gc", SKILLS),
)  # fmt: skip


def prepare(home: Path) -> None:
    """Write the files that the commands use."""
    work = home / "work"
    (work / "my-skill/scripts").mkdir(parents=True)
    (work / "my-skill/tests").mkdir()
    (work / "my-skill/SKILL.md").write_text(
        "---\nname: my-skill\ndescription: Adds two numbers, when asked to add them.\n---\nAdds.\n"
    )
    (work / "my-skill/scripts/main.py").write_text(
        '"""Adds."""\n\n\ndef run(a: int, b: int) -> int:\n    """Add two numbers."""\n    return a + b\n'
    )
    (work / "my-skill/tests/test_main.py").write_text(
        "import sys\n\nsys.path.insert(0, 'scripts')\nimport main\n\n\n"
        "def test_adds():\n    assert main.run(1, 2) == 3\n    assert main.run(-1, 1) == 0\n"
    )
    (work / "file").write_text("text")
    (work / "tasks.jsonl").write_text('{"id": "a", "instruction": "do", "check": "test -f b", "solution": "touch b"}\n')
    (work / "own.toml").write_text('extends = "workspace"\n[syscalls]\nremove = ["personality"]\n')
    (work / "own.conf").write_text('[backends.built]\ntype = "singularity"\ndefinition = "Dockerfile"\n')
    (work / "Dockerfile").write_text("FROM 127.0.0.1:1/nothing\n")


def build_wheel(out: Path) -> Path:
    """Build the wheel of this checkout."""
    argv = [sys.executable, "-I", "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def share_wheel(factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout, which one worker of the session builds for all."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = [*folder.glob("*.whl")]
        return built[0] if built else build_wheel(folder)


def install(wheel: Path, extra: str, environment: Path, *packages: str) -> Path:
    """Create an environment with the wheel, one extra and packages, in the versions of dev.lock; return its ``bin``."""
    uv = Path(sys.executable).with_name("uv")
    # The checkout's own cache: files are linked from it, and no index is asked for what it holds.
    env = os.environ | {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(ROOT / ".cache/uv"))}
    locked = (ROOT / "dev.lock").read_text().splitlines()
    pins = [line.rstrip("\\ ") for line in locked if line[:1].isalnum()]
    constraints = environment.with_suffix(".pins")
    constraints.write_text("\n".join(pins))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True, env=env)
    python = environment / "bin/python"
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    argv = [str(uv), "pip", "install", "--quiet", "--python", str(python), "--constraint", str(constraints), asked]
    argv += packages
    if subprocess.run([*argv, "--offline"], check=False, env=env, capture_output=True).returncode:
        subprocess.run(argv, check=True, env=env, capture_output=True)
    _share_bytecode(environment, wheel.with_name("bytecode"))
    return environment / "bin"


def _share_bytecode(environment: Path, shared: Path) -> None:
    """Let all environments write the compiled form of modules into one folder, so that each is compiled once.

    The files of a package are links to the same ones in all environments, which Python checks by their time and size.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    for folder, names, files in os.walk(packages):
        if "__pycache__" in names:  # it has a compiled form
            names.remove("__pycache__")
        elif any(name.endswith(".py") for name in files):
            compiled = shared / str(Path(folder).relative_to(packages)).replace("/", ".")
            compiled.mkdir(parents=True, exist_ok=True)
            Path(folder, "__pycache__").symlink_to(compiled)
