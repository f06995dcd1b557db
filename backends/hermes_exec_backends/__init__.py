"""The places that ship with hermes_exec, one module each, found by their entry points."""
