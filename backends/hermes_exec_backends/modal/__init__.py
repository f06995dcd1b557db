"""Modal sandboxes, through the vendor's own SDK."""

from hermes_exec_backends.modal.backend import ModalBackend

__all__ = ["ModalBackend"]
