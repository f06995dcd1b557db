"""Prove a policy: attempts to break each rule, made in a probe sandbox and judged outside of it."""
