"""Programs started from an argv, and the supervisor processes that own them."""
