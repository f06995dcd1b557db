"""Programs that are sent to a place as text and run by its Python, 3.6 or later."""
