"""Tools by name: entry points of the group ``hermes_exec.tools``, in sets.

Our own tools form the set `core`, except for those of the sets `web` and `vision`, which a configuration has to name. A
tool of another distribution belongs to the set that its class names, or to a set named like the distribution, and a
conversation has it only if the user's configuration names the tool or its set.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.config.defaults import read_sections
from hermes_exec.config.plugins import find_owner, find_plugins, load_class, own_entry_points, own_values
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_agent.tools.prepared import ToolTraits, prepare_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from hermes_exec_agent.tools.base import BaseTool
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
    "delegate_task": lambda context: context.delegate is not None,
    "memory": lambda context: context.journal is not None,
    "propose_change": lambda context: context.proposals is not None,
    "session_search": lambda context: context.past is not None,
    "user_ask": lambda context: context.user_model is not None,
    "vision_analyze": lambda context: context.models is not None,
}
"""Whether a conversation has what a tool of ours needs."""
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
        names = read_sections().agent.tools
    values = own_values(GROUP)
    chosen, others = _choose([names] if isinstance(names, str) else names, values)
    tools = [prepare_tool(name, values[name]) for name in chosen if _meets_condition(name, context)]
    if others:
        plugins = _find_plugin_tools(others, values).values()
        tools += [each() for each in plugins if each.is_available(context)]
    return offer_tools(sorted(tools, key=_find_position), context)


def create_instances(classes: Iterable[type[BaseTool[Any]]], context: Context) -> Sequence[Tool]:
    """Create one tool of each class that is available in the conversation, and set ``context.tools``."""
    return offer_tools([each() for each in classes if each.is_available(context)], context)


def offer_tools(tools: Iterable[ToolTraits], context: Context) -> Sequence[Tool]:
    """Return the tools that are available in the conversation, as it describes them, and set ``context.tools``."""
    offered = tuple(each for each in tools if each.is_available(context) and _meets_condition(each.name, context))
    for tool in offered:
        if text := context.descriptions.get(tool.name):
            tool.spec = replace(tool.spec, description=" ".join(text.split()))
    context.tools = offered
    return offered


def _meets_condition(name: str, context: Context) -> bool:
    is_met = _CONDITIONS.get(name)
    return is_met is None or is_met(context)


def _find_position(tool: ToolTraits | type[ToolTraits]) -> tuple[int, str]:
    return tool.position, tool.name


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
            from hermes_exec.config.check import nearest_name

            known = nearest_name(name, [*ours, *plugins])
            raise ConfigError(f"[agent] of your hermes.toml: there is no tool {name!r}; the nearest one is {known!r}")


def find_tools(names: Iterable[str]) -> list[type[BaseTool[Any]]]:
    """Return the classes of the tools and sets of tools, in the order in which a model reads them.

    The metadata of other distributions is read only if a name is none of ours.

    Raises:
        ConfigError: there is no such tool or set, or a distribution uses a name of ours.
        PlaceUnavailable: a tool of another distribution cannot be loaded.
    """
    from hermes_exec_agent.tools.base import BaseTool

    ours = own_entry_points(GROUP)
    chosen, others = _choose(names, ours)
    found: dict[str, type[BaseTool[Any]]] = {name: load_class(ours[name], BaseTool) for name in chosen}
    if others:
        found |= _find_plugin_tools(others, ours)
    return sorted(found.values(), key=_find_position)


def _choose(names: Iterable[str], ours: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the tools of ours that the names mean, and the other names; each once."""
    off = {name for names in _NAMED_SETS.values() for name in names}
    sets = {CORE: [name for name in ours if name not in off], MINIMAL: ["terminal"], **_NAMED_SETS}
    chosen: dict[str, None] = {}
    others: dict[str, None] = {}
    for name in names:
        if name in ours or name in sets:
            chosen |= dict.fromkeys(sets.get(name, [name]))
        else:
            others[name] = None
    return list(chosen), list(others)


def _find_plugin_tools(names: Sequence[str], ours: Collection[str]) -> dict[str, type[BaseTool[Any]]]:
    plugins = find_plugins(GROUP, is_reserved=lambda name: name in ours or name in _OUR_SETS)
    found = {name: _load(plugins[name]) for name in names if name in plugins}
    sets = [name for name in names if name not in plugins]
    members = _load_sets(plugins) if sets else {}
    for name in sets:
        if name not in members:
            from hermes_exec.config.check import nearest_name

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
    from hermes_exec_agent.tools.base import BaseTool

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
