"""Other systems, each in a virtual environment of its own, driven one command at a time."""
