"""Containers of Docker, or of an engine with the same API (rootless Docker, Podman)."""

from hermes_exec_backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
