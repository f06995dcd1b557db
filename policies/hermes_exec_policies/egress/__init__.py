"""Network access of a sandbox with granted hosts: an outside proxy that connects to these hosts alone."""

from hermes_exec_policies.egress.policy import NET, egress, granted, with_net
from hermes_exec_policies.egress.proxy import Egress, Named, Passed, named

__all__ = ["NET", "Egress", "Named", "Passed", "egress", "granted", "named", "with_net"]
