"""The backends that ship with hermes_exec, one package each, found by their entry points."""
