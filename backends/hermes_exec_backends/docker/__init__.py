"""Containers of Docker, or of an engine that speaks its API (rootless Docker, Podman)."""

from hermes_exec_backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
