"""The published prices of Modal's and Daytona's sandboxes, for estimates; a profile's ``hourly_cost`` replaces them.

An estimate is the least that a sandbox costs: Modal bills what is used beyond the reservation, and more in chosen
regions; discounts and credits of an account are not known here. A sandbox whose size or GPU is not known has no price.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GIB = 1 << 30
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of a vendor in US dollars an hour."""

    source: str
    """The page, and the day of which the prices are."""
    cpu: float
    memory: float
    """Of a GiB."""
    disk: float = 0.0
    """Of a GiB."""
    gpus: Mapping[str, float] = field(default_factory=dict[str, float])
    least_cpus: float = 0.0
    least_memory: float = 0.0
    """What is reserved at least, and so paid: GiB."""

    def estimate(
        self, *, cpus: float, memory: float, disk: float = 0.0, gpus: Sequence[tuple[str, float]] = ()
    ) -> float | None:
        """Return the least price of a sandbox; None if the price of one of its GPUs is not known.

        Args:
            cpus: the reserved CPUs.
            memory: the reserved memory in GiB.
            disk: the disk in GiB.
            gpus: kinds of GPU, each with the number of them.
        """
        if any(kind.upper() not in self.gpus for kind, _ in gpus):
            return None
        of_gpus = sum(self.gpus[kind.upper()] * count for kind, count in gpus)
        of_memory = max(memory, self.least_memory) * self.memory
        return max(cpus, self.least_cpus) * self.cpu + of_memory + disk * self.disk + of_gpus


MODAL = PriceList(
    "modal.com/pricing of 2026-10-08",
    cpu=0.00003942 * _HOUR_S,
    memory=0.00000667 * _HOUR_S,
    gpus={
        "T4": 0.000164 * _HOUR_S,
        "L4": 0.000222 * _HOUR_S,
        "A10": 0.000306 * _HOUR_S,
        "A10G": 0.000306 * _HOUR_S,
        "L40S": 0.000542 * _HOUR_S,
        "A100": 0.000583 * _HOUR_S,
        "A100-40GB": 0.000583 * _HOUR_S,
        "A100-80GB": 0.000694 * _HOUR_S,
        "RTX-PRO-6000": 0.000842 * _HOUR_S,
        "H100": 0.001097 * _HOUR_S,
        "H200": 0.001261 * _HOUR_S,
        "B200": 0.001736 * _HOUR_S,
    },
    least_cpus=0.125,
    least_memory=0.125,
)
DAYTONA = PriceList(
    "daytona.io/pricing of 2026-05-25",
    cpu=0.0504,
    memory=0.0162,
    disk=0.000108,
    gpus={"H100": 3.95, "RTX-PRO-6000": 3.03},
)


def estimate_modal(cpus: float | None, memory: int | None, gpu: str | None) -> float | None:
    """Return the least price of a sandbox with these options of a profile; ``memory`` is in bytes."""
    kinds = [gpu.partition(":")] if gpu else []
    if "," in (gpu or "") or any(colon and not count.isdigit() for _, colon, count in kinds):
        return None
    gpus = [(kind.rstrip("!"), float(count or 1)) for kind, _, count in kinds]
    return MODAL.estimate(cpus=cpus or 0.0, memory=(memory or 0) / _GIB, gpus=gpus)
