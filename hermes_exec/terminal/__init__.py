"""The objects that users hold: terminals, sessions, streams, jobs, PTYs and forwarded ports."""
