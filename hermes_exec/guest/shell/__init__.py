"""Live shells: sessions, their commands and their state."""
