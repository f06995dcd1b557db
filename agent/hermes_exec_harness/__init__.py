"""The harness of verifiers under a name without dots, as verifiers looks for harnesses."""

from hermes_exec_agent.bridges.verifiers_harness import HermesExecHarness

__all__ = ["HermesExecHarness"]
