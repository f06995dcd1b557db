"""Network access of a sandbox with granted hosts: an outside proxy that connects to these hosts alone."""

from hermes_exec_policies.egress.policy import PROXY_FOLDER, bind_proxy, grant_hosts, open_egress
from hermes_exec_policies.egress.proxy import EgressProxy, HostPort, ProxiedRequest, parse_hosts

__all__ = [
    "PROXY_FOLDER",
    "EgressProxy",
    "HostPort",
    "ProxiedRequest",
    "bind_proxy",
    "grant_hosts",
    "open_egress",
    "parse_hosts",
]
