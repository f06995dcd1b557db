"""Programs that are sent to a target as text and run by its Python, 3.6 or later."""
