"""The one way out of a sandbox that was granted hosts: a proxy outside of it, which knows their names and no others."""

from hermes_exec_policies.egress.policy import NET, egress, granted, with_net
from hermes_exec_policies.egress.proxy import Egress, Named, Passed, named

__all__ = ["NET", "Egress", "Named", "Passed", "egress", "granted", "named", "with_net"]
