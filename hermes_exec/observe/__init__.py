"""What can be seen of a run afterwards: audit, logs, spans; with secrets taken out."""
