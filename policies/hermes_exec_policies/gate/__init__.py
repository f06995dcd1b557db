"""The gate: what nobody has looked at is no skill. Stages, each with findings; the last word is a judge's outside."""
