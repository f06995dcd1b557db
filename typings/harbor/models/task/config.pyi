from enum import Enum

class NetworkMode(Enum):
    PUBLIC = ...
    NO_NETWORK = ...

class NetworkPolicy:
    network_mode: NetworkMode

class EnvironmentConfig:
    docker_image: str | None
    workdir: str | None
