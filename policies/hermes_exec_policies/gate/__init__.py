"""The gate: a skill is registered only after it passed every stage of checks, which run outside of its sandbox."""
