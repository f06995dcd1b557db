"""Judge a change of the configuration: whether it is valid, and which parts a person has to check.

A proposal may change `[agent]` and `[limits]` of ``hermes.toml``, and policies. Its marks name each value that may
permit more than before, and each text that the model follows. A value that cannot be compared counts as looser.
"""

from __future__ import annotations

import tempfile
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import FILE_NAME, read_regular, to_printable
from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from hermes_exec.config.settings import AgentSettings, LimitSettings
    from hermes_exec_policies.model import Policy

_ALLOWED = {
    "agent": ("tools", "instructions", "budget", "approvals", "descriptions", "guardrails"),
    "limits": ("timeout_s", "max_output"),
}
"""The sections and keys of ``hermes.toml`` that a proposal may change."""
_MODES = ("deny", "ask", "allow")
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a change does, beyond its text."""

    loosened: tuple[str, ...] = ()
    """Values that may permit more than before, one line each."""
    texts: tuple[str, ...] = ()
    """Keys of texts that the model follows."""

    @property
    def needs_name(self) -> bool:
        """Whether a person has to type the proposal's name to accept it."""
        return bool(self.loosened or self.texts)

    @property
    def marks(self) -> list[str]:
        """One line for each."""
        return [
            *(f"LOOSENS {each}" for each in self.loosened),
            *(f"CHANGES text for the model: {each}" for each in self.texts),
        ]


def read_files(folder: Path) -> dict[str, str]:
    """Return the texts of the files that proposals may change, by their path below the configuration's folder.

    Raises:
        ConfigError: one cannot be read.
    """
    found: dict[str, str] = {}
    for path in (folder / FILE_NAME, *sorted((folder / "policies").glob(f"*{_SUFFIX}"))):
        if path.is_file():
            found[str(path.relative_to(folder))] = decode(read_regular(path), path)
    return found


def decode(content: bytes, path: Path) -> str:
    """Return the text of a configuration file.

    Raises:
        ConfigError: it is not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{to_printable(path)}: {error}", remedy="fix that line, or move the file away") from None


def judge_change(files: Mapping[str, str], file: str, after: str | None, *, reverts: bool = False) -> Judgement:
    """Judge the change of one file.

    Args:
        files: the texts of the configuration, as `read_files` returns them.
        file: the one that changes.
        after: its text with the change; None if it is removed, which only the reversal of a proposal does.
        reverts: whether it reverses an accepted proposal.

    Raises:
        UsageError: it changes nothing, or something that a proposal may not change.
        ConfigError: the configuration would be invalid.
    """
    before = files.get(file)
    if not reverts and _parse(before or "", file) == _parse(after or "", file):
        raise UsageError("the change has no effect", remedy="another value")
    if file == FILE_NAME:
        return _judge_settings(before or "", after or "")
    return _judge_policies(files, file, after)


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} with the change: {flatten(str(error), 200)}", remedy="another change") from None


def _judge_settings(before: str, after: str) -> Judgement:
    from hermes_exec_agent.tools.toolset import check_tool_names

    old, new = _parse(before, FILE_NAME), _parse(after, FILE_NAME)
    for section in dict.fromkeys((*old, *new)):
        if old.get(section) != new.get(section):
            _check_keys(section, old.get(section, {}), new.get(section, {}))
    one, two = _load(before), _load(after)
    check_tool_names((*two[0].approvals, *two[0].descriptions))
    loosened = [*_compare_limits(one[1], two[1]), *_compare_agent(one[0], two[0])]
    return Judgement(tuple(loosened), tuple(_list_texts(one[0], two[0])))


def _check_keys(section: str, old: object, new: object) -> None:
    allowed = _ALLOWED.get(section, ())
    if not allowed:
        raise UsageError(f"a proposal may not change {flatten(section, 60)}", remedy="[agent], [limits], or a policy")
    one, two = (cast("dict[str, object]", each) if isinstance(each, dict) else {} for each in (old, new))
    for key in dict.fromkeys((*one, *two)):
        if key not in allowed and one.get(key) != two.get(key):
            raise UsageError(
                f"a proposal may not change {section}.{flatten(key, 60)}",
                remedy="; ".join(f"[{name}] {', '.join(keys)}" for name, keys in _ALLOWED.items()),
            )


def _load(text: str) -> tuple[AgentSettings, LimitSettings]:
    from hermes_exec.config.files import parse_file
    from hermes_exec.config.settings import Origin

    found = parse_file(text.encode(), Path(FILE_NAME), Origin("user", FILE_NAME))
    return found.agent, found.limits


def _compare_limits(old: LimitSettings, new: LimitSettings) -> Iterable[str]:
    for key in ("timeout_s", "max_output"):
        one, two = getattr(old, key), getattr(new, key)
        unlimited = key == "timeout_s"  # without max_output, the profile's own limit holds
        if one != two and not (two is not None and (two < one if one is not None else unlimited)):
            yield _line(f"limits.{key}", one, two)


def _compare_agent(old: AgentSettings, new: AgentSettings) -> Iterable[str]:
    if new.budget > old.budget:
        yield _line("agent.budget", old.budget, new.budget)
    for key in type(old.guardrails).model_fields:
        one, two = getattr(old.guardrails, key), getattr(new.guardrails, key)
        if any(later > earlier or not later for earlier, later in zip(one, two, strict=True) if earlier):
            yield _line(f"agent.guardrails.{key}", list(one), list(two))
    for tool in dict.fromkeys((*old.approvals, *new.approvals)):
        one, two = old.approvals.get(tool), new.approvals.get(tool)
        # Without a mode of its own, a tool has that of the command line, which may be any.
        if two not in (one, "deny") and (one is None or two is None or _MODES.index(two) > _MODES.index(one)):
            yield _line(f"agent.approvals.{tool}", one, two)
    if added := sorted(_list_tools(new) - _list_tools(old)):
        yield f"agent.tools: more tools: {', '.join(added)}"


def _list_tools(agent: AgentSettings) -> set[str]:
    from hermes_exec_agent.tools.toolset import find_tools

    return {each.name for each in find_tools(agent.tools)}


def _list_texts(old: AgentSettings, new: AgentSettings) -> Iterable[str]:
    if old.instructions != new.instructions:
        yield "agent.instructions"
    for tool in dict.fromkeys((*old.descriptions, *new.descriptions)):
        if old.descriptions.get(tool) != new.descriptions.get(tool):
            yield f"agent.descriptions.{tool}"


def _line(key: str, old: object, new: object) -> str:
    one, two = ("none" if each is None else flatten(str(each), 200) for each in (old, new))
    return f"{key}: {one} -> {two}"


def _judge_policies(files: Mapping[str, str], file: str, after: str | None) -> Judgement:
    from hermes_exec_policies.load import list_shipped_policies
    from hermes_exec_policies.loosening import list_loosened

    name = Path(file).stem
    if name in list_shipped_policies():
        raise UsageError(f"{name} is a built-in policy", remedy=f'a policy of another name with extends = "{name}"')
    changed = {key: text for key, text in files.items() if key != file} | ({} if after is None else {file: after})
    earlier, later = _load_policies(files, ""), _load_policies(changed, name if after is not None else "")
    found: list[str] = []
    for policy, two in later.items():
        one = earlier.get(policy)
        if one is None:
            found.append(f"the policy {policy}, which is new")
        else:
            found += [_line(f"{policy}: {key}", old, new) for key, old, new in list_loosened(one, two)]
    found += [f"the policy {each}, which is removed or invalid" for each in sorted(earlier.keys() - later.keys())]
    return Judgement(tuple(found))


def _load_policies(files: Mapping[str, str], required: str) -> dict[str, Policy]:
    """Return the valid policies in these files, by name.

    Raises:
        ConfigError: ``required`` is invalid.
    """
    from hermes_exec_policies.load import load_policy

    found: dict[str, Policy] = {}
    with copy_files(files) as folder:
        for path in sorted((folder / "policies").glob(f"*{_SUFFIX}")):
            try:
                found[path.stem] = load_policy(str(path))
            except HermesError as error:
                if path.stem == required:
                    raise ConfigError(error.what.replace(f"{folder}/", ""), remedy=error.remedy) from None
    return found


@contextmanager
def copy_files(files: Mapping[str, str]) -> Generator[Path]:
    """Write the texts to a folder of their own, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hermes-proposal-") as name:
        folder = Path(name)
        for file, text in files.items():
            path = folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield folder
