"""A job's order as a `torch.utils.data.Sampler`; apart from the sampler itself, which does not need torch."""

from collections.abc import Iterator
from typing import Protocol

from torch.utils.data import Sampler

__all__ = ["TorchSampler"]


class JobOrder(Protocol):
    """What has an order of elements, again and again."""

    def __iter__(self) -> Iterator[int]:
        """One epoch."""

    def __len__(self) -> int:
        """Elements of an epoch."""


class TorchSampler(Sampler[int]):
    """One epoch of a job's order for each loop over it."""

    def __init__(self, job: JobOrder) -> None:
        """Hand out what ``job``, a `JobSampler`, hands out."""
        self.job = job

    def __iter__(self) -> Iterator[int]:
        """See `JobSampler.__iter__`."""
        return iter(self.job)

    def __len__(self) -> int:
        """Elements of an epoch."""
        return len(self.job)
