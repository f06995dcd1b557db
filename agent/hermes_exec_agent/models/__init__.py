"""Models behind one protocol, so that an endpoint and a script are interchangeable."""

from hermes_exec._lazy import lazy_loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.obedient import ObedientModel
    from hermes_exec_agent.models.protocol import complete
    from hermes_exec_agent.models.scripted import Request, ScriptedModel, ask, say
    from hermes_exec_agent.models.settings import ModelSettings, load_models

_MODULES = {
    "ModelSettings": "settings",
    "Models": "catalog",
    "ObedientModel": "obedient",
    "Request": "scripted",
    "ScriptedModel": "scripted",
    "ask": "scripted",
    "complete": "protocol",
    "load_models": "settings",
    "say": "scripted",
}

__all__ = [
    "ModelSettings", "Models", "ObedientModel", "Request", "ScriptedModel", "ask", "complete", "load_models", "say",
]  # fmt: skip

__getattr__ = lazy_loader(__name__, _MODULES)
