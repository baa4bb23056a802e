"""Many values that are held together, and are objects of Python one by one."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

__all__ = ["Column"]

T_co = TypeVar("T_co", covariant=True)


class Column(Sequence[T_co]):
    """A value for each row, which is an object of Python only while somebody looks at it."""

    __slots__ = ()

    @abstractmethod
    def one(self, row: int) -> T_co:
        """The value of a row."""

    def some(self, rows: slice) -> Sequence[T_co]:
        """The values of some rows that follow one another."""
        return [self.one(row) for row in range(*rows.indices(len(self)))]

    @overload
    def __getitem__(self, row: int) -> T_co: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[T_co]: ...
    def __getitem__(self, row: int | slice) -> T_co | Sequence[T_co]:
        """One of them, or the list of some."""
        return self.some(row) if isinstance(row, slice) else self.one(int(row))
