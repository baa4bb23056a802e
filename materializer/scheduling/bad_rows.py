"""Rows whose video cannot give them, until their task has decided what becomes of them.

A decision may take long: it is asked where the video lies whether its file has gone, and a plan that is being made must
know of every replacement. The dispatcher does not wait for it, and serves everybody else meanwhile.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from viewcache.errors import ViewcacheError
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.rules import Wanted
from viewcache.materializer.scheduling.running import by_work
from viewcache.materializer.scheduling.work import RowState, Work

__all__ = ["UNDECIDED_S", "BadClip", "BadRows", "Failure", "Undecided"]

BadClip = Callable[[Work[str], list[int], str], ViewcacheError | None]

Failure = Callable[[str], ViewcacheError]
"""Makes an error of a message."""

UNDECIDED_S = 0.02
"""How long the dispatcher waits before it asks again."""


class Undecided(Exception):
    """It cannot be said yet; ask again.

    Attributes:
        then: is to be asked in place of who was asked, if it is given.
    """

    def __init__(self, then: BadClip | None = None) -> None:
        """Keep who is to be asked."""
        super().__init__()
        self.then = then


@dataclass(frozen=True, slots=True)
class _Case:
    tried: float
    """When it was begun to make them, of `time.monotonic`."""
    work: Work[str]
    keys: Mapping[int, str]
    """Row → key of what could not be made. The rows count as being made, so that nobody begins them anew."""
    why: str
    failure: Failure | None
    others: tuple[int, ...] = ()
    """Rows of the same block whose pictures are not to blame, and wait for those that are."""
    then: BadClip | None = None
    """Who is asked by now, see `Undecided`."""


class BadRows:
    """The dispatcher's own; used on its thread."""

    def __init__(self, board: Board, on_bad_clip: BadClip) -> None:
        """``on_bad_clip`` as for `Dispatcher`."""
        self._board = board
        self._on_bad_clip = on_bad_clip
        self._undecided: list[_Case] = []

    def __len__(self) -> int:
        """How many cases wait for a decision."""
        return len(self._undecided)

    def add(
        self,
        tried: float,
        wanted: Mapping[str, list[Wanted[str]]],
        why: str,
        failure: Failure | None = None,
        parts: Mapping[int, str] | None = None,
    ) -> None:
        """Let the policies of the tasks decide; ``failure`` is the kind of error that readers get if they give up.

        Args:
            tried: when the job was begun, see `Board.fail`.
            wanted: key of what could not be made → the rows that need it.
            why: it could not.
            failure: None = the kind that the task says; its words are told in any case.
            parts: of a block, the places of the pictures that could not be made, and why each could not; the others
                could. It is decided of all pictures of the image that the first of them is of, and of the next ones
                when the block is made again: each may be another policy's case.
        """
        if parts is not None:
            for key, same in wanted.items():
                for work, _ in by_work(same):
                    self._add_parts(tried, work, key, parts, why, failure)
            return
        # A reader may wait for some pictures of a block, and others of it are to blame.
        whole = {key: [(work, each) for work, row in same for each in work.beside(row)] for key, same in wanted.items()}
        key_of = {(id(work), row): key for key, same in whole.items() for work, row in same}
        for work, rows in by_work(each for same in whole.values() for each in same):
            self._decide(_Case(tried, work, {row: key_of[id(work), row] for row in rows}, why, failure))

    def _add_parts(
        self, tried: float, work: Work[str], key: str, parts: Container[int], why: str, failure: Failure | None
    ) -> None:
        rows = work.rows_of(key)
        among = [row for row in rows if work.part_of(row) in parts]
        first = min(among, key=work.part_of, default=-1)
        bad = {row: key for row in among if work.file_key(row) == work.file_key(first)}
        self._decide(_Case(tried, work, bad, why, failure, tuple(row for row in rows if row not in bad)))

    def ask_again(self) -> None:
        """Ask for what was not decided."""
        cases, self._undecided = self._undecided, []
        for case in cases:
            self._decide(case)

    def _decide(self, case: _Case) -> None:
        # A row that another video gives by now is not what could not be made.
        rows = [row for row, key in case.keys.items() if case.work.key(row) == key]
        if len(rows) < len(case.keys):
            self._board.mark(case.work, [row for row in case.keys if row not in rows], RowState.PLANNED)
        if not rows:
            self._board.mark(case.work, list(case.others), RowState.PLANNED)
            return
        try:
            error = (case.then or self._on_bad_clip)(case.work, rows, case.why)
        except Undecided as undecided:
            keys, then = {row: case.keys[row] for row in rows}, undecided.then or case.then
            self._undecided.append(replace(case, keys=keys, then=then))
            return
        except ViewcacheError as failed:  # a catalog that cannot write, say: whoever asks for them next tries again
            error = failed
        rows += case.others
        self._board.mark(case.work, rows, RowState.PLANNED if error is None else RowState.FAILED)
        if error is not None:
            told = case.failure(_both(case.why, error)) if case.failure else error
            self._board.fail(case.work, rows, told, tried=case.tried)


def _both(why: str, error: ViewcacheError) -> str:
    """Why something could not be made, and why the policy gave up; mostly an error's message begins with the former."""
    return str(error) if why in str(error) else f"{why}; {error}"
