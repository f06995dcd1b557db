"""Interactive programs on pseudo-terminals."""
