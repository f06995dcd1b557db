"""Tools by name: entry points of the group ``hermes_exec.tools``, in sets.

Our own tools form the set `core`, except for those of the sets `web` and `vision`, which a configuration has to name. A
tool of another distribution belongs to the set that its class names, or to a set named like the distribution, and a
conversation has it only if the user's configuration names the tool or its set.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest_name
from hermes_exec.config.load import load_settings
from hermes_exec.config.plugins import find_owner, find_plugins, load_class, own_entry_points
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_agent.tools.base import BaseTool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from hermes_exec_agent.tools.tool import Context, Tool

_log = logging.getLogger("hermes_exec.agent")
GROUP = "hermes_exec.tools"
CORE = "core"
"""The set of our own tools, except for those of a set that is off unless it is named."""
MINIMAL = "minimal"
"""The set of the tool ``terminal`` alone, which suffices for many tasks and for models that more tools confuse."""
_NAMED_SETS = {"vision": ("vision_analyze",), "web": ("web_search", "web_extract")}
"""Sets of our own tools that are off unless they are named, as the attribute ``tool_set`` of their classes has them."""
_CONDITIONS: Mapping[str, Callable[[Context], bool]] = {
    "cronjob": lambda context: context.proposes_jobs,
    "memory": lambda context: context.journal is not None,
    "propose_change": lambda context: context.proposals is not None,
    "session_search": lambda context: context.past is not None,
    "user_ask": lambda context: context.user_model is not None,
}
"""Whether a conversation has what a tool of ours needs, for those that most lack; asked before a module is imported."""
_OUR_SETS = (CORE, MINIMAL, *_NAMED_SETS)


def create_tools(context: Context, names: str | Iterable[str] | None = None) -> Sequence[Tool]:
    """Create the tools of a conversation, which stay the same until it ends, and set ``context.tools``.

    Args:
        context: of the conversation; its terminal, models and callbacks must be set.
        names: tools and sets of tools; ``[agent] tools`` of the user's configuration if None.

    Raises:
        ConfigError: there is no such tool or set, or a distribution uses a name of ours.
        PlaceUnavailable: a tool of another distribution cannot be loaded.
    """
    if names is None:
        names = load_settings().agent.tools
    without = [name for name, is_met in _CONDITIONS.items() if not is_met(context)]
    return create_instances(find_tools([names] if isinstance(names, str) else names, without=without), context)


def create_instances(classes: Iterable[type[BaseTool[Any]]], context: Context) -> Sequence[Tool]:
    """Create one tool of each class that is available in the conversation, and set ``context.tools``."""
    tools = tuple(each() for each in classes if _is_available(each, context))
    for tool in tools:
        if text := context.descriptions.get(tool.name):
            tool.spec = replace(tool.spec, description=" ".join(text.split()))
    context.tools = tools
    return tools


def _is_available(tool: type[BaseTool[Any]], context: Context) -> bool:
    is_met = _CONDITIONS.get(tool.name)
    return tool.is_available(context) and (is_met is None or is_met(context))


def check_tool_names(names: Iterable[str]) -> None:
    """Check that each name is that of a tool, of our own or of another distribution.

    Raises:
        ConfigError: one is not.
    """
    ours = own_entry_points(GROUP)
    others = [name for name in names if name not in ours]
    plugins = find_plugins(GROUP, is_reserved=lambda name: name in ours or name in _OUR_SETS) if others else {}
    for name in others:
        if name not in plugins:
            known = nearest_name(name, [*ours, *plugins])
            raise ConfigError(f"[agent] of your hermes.toml: there is no tool {name!r}; the nearest one is {known!r}")


def find_tools(names: Iterable[str], *, without: Collection[str] = ()) -> list[type[BaseTool[Any]]]:
    """Return the classes of the tools and sets of tools, in the order in which a model reads them.

    The metadata of other distributions is read only if a name is none of ours. The modules of our own tools ``without``
    which the list is returned are not imported.

    Raises:
        ConfigError: there is no such tool or set, or a distribution uses a name of ours.
        PlaceUnavailable: a tool of another distribution cannot be loaded.
    """
    ours = own_entry_points(GROUP)
    off = {name for names in _NAMED_SETS.values() for name in names}
    sets = {CORE: [name for name in ours if name not in off], MINIMAL: ["terminal"], **_NAMED_SETS}
    chosen: dict[str, type[BaseTool[Any]]] = {}
    others: list[str] = []
    for name in dict.fromkeys(names):
        if name not in ours and name not in sets:
            others.append(name)
            continue
        for each in sets.get(name, [name]):
            if each not in without:
                chosen.setdefault(each, load_class(ours[each], BaseTool))
    if others:
        chosen |= _find_plugin_tools(others, ours)
    return sorted(chosen.values(), key=lambda tool: (tool.position, tool.name))


def _find_plugin_tools(names: Sequence[str], ours: dict[str, EntryPoint]) -> dict[str, type[BaseTool[Any]]]:
    plugins = find_plugins(GROUP, is_reserved=lambda name: name in ours or name in _OUR_SETS)
    found = {name: _load(plugins[name]) for name in names if name in plugins}
    sets = [name for name in names if name not in plugins]
    members = _load_sets(plugins) if sets else {}
    for name in sets:
        if name not in members:
            known = [*_OUR_SETS, *ours, *members, *plugins]
            raise ConfigError(
                f"there is no tool or set of tools {name!r}",
                remedy=f"{nearest_name(name, known)}; or {', '.join(known)}",
            )
        found |= members[name]
    return found


def _load_sets(plugins: dict[str, EntryPoint]) -> dict[str, dict[str, type[BaseTool[Any]]]]:
    """Load every plugin's tool to learn its set. A plugin that cannot be loaded is logged and left out."""
    sets: dict[str, dict[str, type[BaseTool[Any]]]] = {}
    for name, point in plugins.items():
        try:
            tool = _load(point)
        except (ConfigError, PlaceUnavailable) as error:
            _log.warning("%s", error)
            continue
        sets.setdefault(tool.tool_set or find_owner(point), {})[name] = tool
    return sets


def _load(point: EntryPoint) -> type[BaseTool[Any]]:
    tool: type[BaseTool[Any]] = load_class(point, BaseTool)
    if tool.name != point.name:
        raise ConfigError(
            f"the distribution {find_owner(point)!r} registers the tool {tool.name!r} under the name {point.name!r}",
            remedy=f"name its entry point {tool.name}",
        )
    if tool.tool_set in _OUR_SETS:
        raise ConfigError(
            f"the distribution {find_owner(point)!r} puts the tool {tool.name!r} into our own set {tool.tool_set!r}",
            remedy="another tool_set",
        )
    return tool
