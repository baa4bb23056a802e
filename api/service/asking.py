"""One question on one line to the service: sending it, waiting for the answer, and what ends the wait."""

import random
import select
import socket
import time
from typing import TYPE_CHECKING, TypeVar

from viewcache.api.service import answers, asks, wire
from viewcache.api.service.peer import peer
from viewcache.errors import BadInput, Broken, Closed, Timeout
from viewcache.materializer.gate import Cancelled

if TYPE_CHECKING:
    from viewcache.materializer.dataset.listing import Progress

__all__ = ["SILENT_S", "Died", "Ended", "Told", "ask_on", "check_there", "expect", "named", "wait_calmly"]

SILENT_S = 30.0
"""How long the service may say nothing: it tells those who wait every five seconds that the work goes on."""

SLICE_S = 0.2
"""How soon a question that is cancelled ends."""

A = TypeVar("A", bound=answers.Answer)


class Ended(Exception):
    """The service has ended, or is about to."""


class Died(Ended):
    """It has ended without a word, while it was asked."""


class Told(Exception):
    """The service has answered with an error."""

    def __init__(self, error: Exception) -> None:
        """Keep the error, which is raised once the line is put back."""
        self.error = error
        super().__init__()


def check_there(line: socket.socket) -> None:
    """Notice that the service has ended, on a line on which nothing is being asked.

    Raises:
        Ended: it has.
    """
    if _is_readable(line, 0.0):
        raise Ended


def wait_calmly(line: socket.socket, seconds: float, cancelled: Cancelled | None) -> None:
    """Let a service live for a while before it is asked; those who wait at the same moment do not ask at the same one.

    Raises:
        Ended: it has not lived so long.
        Closed: the reader was cancelled.
    """
    until = time.monotonic() + seconds * random.uniform(1, 1.5)
    while (left := until - time.monotonic()) > 0:
        if cancelled is not None and cancelled.is_set():
            raise Closed("the reader was cancelled")
        if _is_readable(line, min(left, SLICE_S)):
            raise Ended


def _is_readable(line: socket.socket, seconds: float) -> bool:
    found = select.poll()
    found.register(line, select.POLLIN)
    return bool(found.poll(1000 * seconds))


def named(ask: asks.Ask | None) -> str:
    """What a question is about, in words."""
    task = getattr(ask, "task", None)
    if task is None:
        return "nothing yet" if ask is None else f"its {type(ask).__name__.lower()}"
    epoch, iteration = getattr(ask, "epoch", None), getattr(ask, "iteration", None)
    return f"task {task}" if epoch is None or iteration is None else f"view {task}/{epoch}/{iteration}"


def ask_on(
    line: socket.socket, ask: asks.Ask, cancelled: Cancelled | None, progress: "Progress | None" = None
) -> tuple[answers.Answer, list[int]]:
    """Ask on a line and wait for the answer."""
    try:
        packed = wire.encode(ask)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise Told(BadInput(f"{named(ask)} cannot be asked for: {error}")) from error
    if len(packed) > wire.ASK_BYTES:
        raise Told(Broken(f"what is asked has more than {wire.ASK_BYTES} bytes: ask for less at a time"))
    try:
        wire.send_body(line, packed)
        while True:
            _wait(line, cancelled)
            line.settimeout(SILENT_S)
            body, descriptors = wire.receive(line, wire.ANSWER_BYTES)
            answer = wire.decode_answer(body)
            if not isinstance(answer, answers.Note):
                return answer, descriptors
            if progress is not None and answer.total:
                progress(answer.done, answer.total, answer.name)
    except TimeoutError:
        pid, _ = peer(line)
        raise Timeout(
            f"the service, process {pid}, has said nothing for {SILENT_S:.0f} s: is it stopped? `viewcache stop --now` "
            "ends it, and the next question starts another"
        ) from None
    except (EOFError, ConnectionError) as error:
        raise Died from error


def _wait(line: socket.socket, cancelled: Cancelled | None) -> None:
    """Wait for the first byte, in slices, so that a question can be cancelled.

    Raises:
        Closed: it was.
        TimeoutError: nothing came for too long.
    """
    if cancelled is None:
        return
    until = time.monotonic() + SILENT_S
    line.settimeout(SLICE_S)
    while True:
        if cancelled.is_set():
            raise Closed("the reader was cancelled")
        try:
            if not line.recv(1, socket.MSG_PEEK):
                raise EOFError
            return
        except TimeoutError:
            if time.monotonic() > until:
                raise


def expect(kind: type[A], answer: answers.Answer) -> A:
    """The answer, which is of the kind that was wanted.

    Raises:
        Ended: the service is about to end.
        Told: it answered with an error.
    """
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, answers.Going):
        raise Ended
    if isinstance(answer, answers.Failed):
        raise Told(wire.error_of(answer))
    raise Told(Broken(f"the service answered with {type(answer).__name__} where {kind.__name__} was expected"))
