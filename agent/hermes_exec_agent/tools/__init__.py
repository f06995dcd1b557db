"""Tools that a model can call, which run in one target over one terminal."""
