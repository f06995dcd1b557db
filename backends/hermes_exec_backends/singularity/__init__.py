"""Singularity and Apptainer: containers of image files, without a daemon and without root."""

from hermes_exec_backends.singularity.backend import SingularityBackend

__all__ = ["SingularityBackend"]
