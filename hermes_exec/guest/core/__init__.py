"""The part of the guest that is sent first: the protocol, the event loop and the process that serves requests."""
