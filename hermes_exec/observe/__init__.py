"""Records of a run: audit, logs and spans, without secrets."""
