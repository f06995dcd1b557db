"""Long-term memory: an index by meaning of notes, failed runs, the journal, skills and messages, made from the log."""
