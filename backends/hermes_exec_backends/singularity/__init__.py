"""Singularity and Apptainer: containers of image files, where no daemon and no root is needed."""

from hermes_exec_backends.singularity.backend import SingularityBackend

__all__ = ["SingularityBackend"]
