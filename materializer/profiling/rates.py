"""What mixes of kept and encoded pictures should give, by what one of each takes of cores and devices (Liquid §4.1).

Devices and cores work at the same time, so what is slower alone is as fast as both together. The trade-off: rates are
means, and a real pipeline also waits where one of both is idle for a moment; measured throughput is beside it.
"""

import math
from dataclasses import dataclass

from viewcache.materializer.profiling.mixes import TENTHS

__all__ = ["Form", "Rates"]


@dataclass(frozen=True, slots=True)
class Form:
    """What one picture takes that is made of a kept one, or of its file."""

    worker_s: float
    """Core seconds of a worker."""
    reader_s: float
    """Core seconds of the process that hands out jobs and reads blocks."""
    bytes: float
    """Read of its device."""
    bytes_per_s: float
    """Of that device; infinite where memory has the bytes."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What pictures of both forms take on one machine."""

    source: Form
    kept: Form
    one_device: bool
    """Whether files and kept pictures lie on the same one, so that it has to give both."""
    workers: int
    cores: int

    def cores_per_s(self, tenths: int) -> float:
        """Pictures a second that the cores can make of a mix, without waiting for a device.

        Workers are as many as the settings say; they and the reader share the machine's cores.
        """
        worker_s = _mixed(self.source.worker_s, self.kept.worker_s, tenths)
        reader_s = _mixed(self.source.reader_s, self.kept.reader_s, tenths)
        return 1 / self.core_s(worker_s, reader_s)

    def core_s(self, worker_s: float, reader_s: float) -> float:
        """Seconds from one picture to the next where each takes so many core seconds."""
        return max(worker_s / self.workers, (worker_s + reader_s) / self.cores)

    def devices_per_s(self, tenths: int) -> float:
        """Pictures a second that the devices can give for a mix; infinite where memory has all."""
        share = tenths / TENTHS[-1]
        seconds = self.device_s((1 - share) * self.source.bytes, share * self.kept.bytes)
        return 1 / seconds if seconds else math.inf

    def device_s(self, source_bytes: float, kept_bytes: float) -> float:
        """Seconds of the busiest device for so many bytes of files and of kept pictures."""
        source_s, kept_s = source_bytes / self.source.bytes_per_s, kept_bytes / self.kept.bytes_per_s
        return source_s + kept_s if self.one_device else max(source_s, kept_s)

    def predicted(self, tenths: int) -> float:
        """Pictures a second of a mix."""
        return min(self.cores_per_s(tenths), self.devices_per_s(tenths))

    @property
    def best(self) -> int:
        """The mix of which most is predicted, in tenths; of equal ones the one that keeps least."""
        return max(TENTHS, key=self.predicted)


def _mixed(source: float, kept: float, tenths: int) -> float:
    share = tenths / TENTHS[-1]
    return (1 - share) * source + share * kept
