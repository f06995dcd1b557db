"""The command groups of the agent: ``chat``, ``serve``, ``conversations`` and ``skill``."""
