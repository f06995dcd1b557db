"""The one way out of a sandbox that was granted hosts: a proxy outside of it, which knows their names and no others."""

from hermes_exec_policies.egress.granted import NET, egress, granted, with_net
from hermes_exec_policies.egress.names import Named, named
from hermes_exec_policies.egress.proxy import Egress, Passed

__all__ = ["NET", "Egress", "Named", "Passed", "egress", "granted", "named", "with_net"]
