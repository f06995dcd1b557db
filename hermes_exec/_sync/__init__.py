"""The parts of the blocking interface ``hermes_exec.sync`` that are not generated."""
