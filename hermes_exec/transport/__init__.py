"""The link: our end of the protocol whose other end is the guest (docs/protocol.md)."""
