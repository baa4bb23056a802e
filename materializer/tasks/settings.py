"""What a task needs of its cache, and what it shares with other tasks."""

from dataclasses import dataclass

__all__ = ["Share", "TaskSettings"]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task needs of the cache's settings."""

    seed: int
    epochs_per_generation: int
    budget_bytes: int
    grid: int = 1
    """Greatest common divisor of the strides of the tasks that it shares clips with."""
    together: bool = False
    """Whether its order is drawn together with that of other tasks, and not at once."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a task shares with others."""

    grid: int
    """Greatest common divisor of the strides of the tasks that draw clip starts together."""
    together: bool
    """Whether its order is drawn with that of others."""
