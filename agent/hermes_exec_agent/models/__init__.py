"""Models behind one small protocol, so that the loop cannot tell an endpoint from a script."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.protocol import complete
    from hermes_exec_agent.models.scripted import Request, ScriptedModel, ask, say
    from hermes_exec_agent.models.settings import ModelSettings, load_models

_HOME = {
    "ModelSettings": "settings",
    "Models": "catalog",
    "Request": "scripted",
    "ScriptedModel": "scripted",
    "ask": "scripted",
    "complete": "protocol",
    "load_models": "settings",
    "say": "scripted",
}

__all__ = ["ModelSettings", "Models", "Request", "ScriptedModel", "ask", "complete", "load_models", "say"]


def __getattr__(name: str) -> object:
    """Load a public name."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
