"""Long-term memory: an index by meaning of notes, failed runs, the journal and skills, built from the event log."""
