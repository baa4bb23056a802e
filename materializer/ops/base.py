"""What an operation is: it reads its parameters, draws its random choices for many clips at once, and is then applied.

Drawing is apart from doing: ``resolve`` turns parameters and keyed randomness into one row of int32 per clip while a
generation is planned; ``apply`` later needs that row only. So equal rows are equal work, and tasks merge on them.
"""

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, OpFailed
from viewcache.materializer.ops.cells import cell_of, cells_of_class
from viewcache.materializer.ops.failures import is_ours, named, op_failed
from viewcache.materializer.ops.fields import Field, Params, read_params
from viewcache.materializer.ops.fingerprint import held_by
from viewcache.materializer.ops.loaded import check_loaded
from viewcache.materializer.ops.made_of import TAKEN, UnreadableError
from viewcache.materializer.randomness import Words, fraction, threshold, uniform

__all__ = ["ClipOp", "Draw", "Fixed", "FrameOp", "NativeOp", "Op", "ReadOp", "Rows", "Size", "Stage", "TimeOp"]

Rows = NDArray[np.int32]
"""(n, len(op.columns)): the resolved values of n clips; a single row is Rows[i]."""

Fixed = NDArray[np.int64]

Size = tuple[int, int]
"""Height and width in pixels."""

Stage = Literal["frame", "clip", "time", "read"]


@dataclass(frozen=True, slots=True)
class Draw:
    """The addresses of the random numbers of one operation for n clips; arrays have length n.

    Tasks that apply an operation with the same ``scope`` and ``ordinal`` to the same video, epoch and sample get the
    same numbers, whatever its other parameters: that is what makes their crops nest.
    """

    seed: int
    scope: str
    """``op.scope`` of the operation, or another purpose such as ``branch/<step>``."""
    ordinal: int
    """How many operations of the same scope stand before this one in the task's config (0 for the first)."""
    video: Words
    """Address words of the videos, ``randomness.address_word(name)``."""
    epoch: np.ndarray
    sample: np.ndarray
    """Ordinals of the clips among the clips of their video in one epoch."""
    independent: int = 0
    """0 to share; the task's address word to draw apart from all other tasks."""

    def fraction(self, what: str, k: int = 0) -> Words:
        """Return uniform fractions in [0, 1) as numerators over ``ONE``; the way to draw integers exactly.

        Args:
            what: the use of the number within the operation, e.g. ``y``.
            k: number of the try, for operations that draw the same thing several times.
        """
        return fraction(self.seed, f"op/{self.scope}/{what}", *self._where(k))

    def uniform(self, what: str, k: int = 0) -> NDArray[np.float64]:
        """Return uniform float64 in [0, 1); arguments as for ``fraction``."""
        return uniform(self.seed, f"op/{self.scope}/{what}", *self._where(k))

    def chance(self, probability: float, what: str = "chance") -> NDArray[np.bool_]:
        """Return True with the given probability, for each clip."""
        return np.asarray(self.fraction(what) < threshold(probability))

    def _where(self, k: int) -> tuple[int | np.ndarray, ...]:
        return self.ordinal, self.independent, k, self.video, self.epoch, self.sample


class Op(ABC):
    """Base of all operations; subclass ``FrameOp``, ``NativeOp``, ``ClipOp``, ``TimeOp`` or ``ReadOp``.

    One instance serves every use of the operation in the process: it has no state. Parameters are passed in their
    canonical form, as ``parse`` gives them.
    """

    name: ClassVar[str]
    """The word in configs, [a-z][a-z0-9_]*."""
    stage: ClassVar[Stage]
    native: ClassVar[bool] = False
    """True if it is a pure resize, which the dispatcher may do in the decoder's one swscale step (see ``NativeOp``)."""
    fields: ClassVar[tuple[Field, ...]] = ()
    shorthand: ClassVar[str | None] = None
    """The field that a bare value is given to: ``inv_sample: true``."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Names of the int32 values that ``resolve`` gives for each clip."""
    keyed: ClassVar[tuple[str, ...] | None] = None
    """Parameters that change the result beyond the resolved row; None = all of them, which is always safe."""
    scope: ClassVar[str] = ""
    """Operations of one scope share their draws (``Draw``); empty = the name."""
    effect: ClassVar[str] = ""
    """Operations of one effect do the same to a frame for equal rows and keyed parameters; empty = the name."""
    sizes: ClassVar[bool] = False
    """True if the size of its output may differ from that of its input."""
    places: ClassVar[int] = 1
    """How many crops, say, a clip has by the number of the sample: further samples begin again with the first."""
    hidden: ClassVar[bool] = False
    """True if no configuration names it: it stands for what another key says."""
    out_of_process: ClassVar[bool] = False
    """True if an op worker serves it, which viewcache sets: several frames to a call cost less then."""

    def __init_subclass__(cls, **kwargs: object):
        """Fill in the defaults that come from the name; never let custom code pass for the code it inherits from."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if not is_ours(cls) and "fingerprint" not in own:
            cls.fingerprint = Op.fingerprint  # type: ignore[method-assign] # the hash of its source, not the base's "1"
            _defined_in[cls] = _text_of(cls, sys._getframe(1))
        if "name" in own:
            cls.scope = cls.scope or own["name"]
            cls.effect = own.get("effect") or (cls.effect if is_ours(cls) else "") or own["name"]

    @property
    def fingerprint(self) -> str:
        """Version of the code, which enters content keys.

        Built-in operations declare it and raise it when their result changes by a bit. The default, meant for
        custom operations, is a hash of the source of every module outside viewcache that the class is made of, and
        of what the instance holds when it is first asked: later on that may be what a call left there.

        Raises:
            BadInput: the source or a value cannot be read; declare ``fingerprint = "1"`` in the class then.
        """
        taken: str | None = vars(self).get(TAKEN)
        if taken is None:
            taken = vars(self)[TAKEN] = _with_values(self, _source_fingerprint(type(self)))
        return taken

    def parse(self, value: object) -> Params:
        """Read what a config says behind the name.

        Returns:
            Canonical parameters, sorted by name, every field present.

        Raises:
            BadInput: what is wrong, the value, and what is allowed.
        """
        values = read_params(self.name, self.fields, self.shorthand, value)
        self.check(values)
        return tuple(sorted(values.items()))

    def check(self, values: dict[str, object]) -> None:  # noqa: B027 - a hook: most operations have no such rule
        """Refuse combinations of parameters that are wrong together, by BadInput."""

    def key_params(self, params: Params) -> Params:
        """Return the parameters that enter content keys beside effect, fingerprint and row."""
        return params if self.keyed is None else tuple(item for item in params if item[0] in self.keyed)

    def fits(self, params: Params, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """Say for each frame size whether the operation can be applied to it."""
        return np.ones(np.broadcast(h, w).shape, dtype=np.bool_)

    def require_fit(self, params: Params, h: np.ndarray, w: np.ndarray) -> None:
        """Raise BadInput, with the first frame size that does not fit, unless all do."""
        good = self.fits(params, h, w)
        if not good.all():
            i = int(np.argmin(good))
            raise BadInput(f"{self.name}: a frame of {h[i]}x{w[i]} (height x width) {self.unfit_hint(params)}")

    def unfit_hint(self, params: Params) -> str:
        """Say why a frame does not fit and what to do; the end of a sentence that begins with the frame."""
        return "does not fit"

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Make all random choices for n clips.

        Args:
            params: from ``parse``.
            draw: addresses of n clips.
            h: heights of the frames that come in, in pixels, length n.
            w: widths, likewise.

        Returns:
            Rows of int32, and the heights and widths that go out.

        Raises:
            BadInput: a frame does not fit (``fits`` says which).
        """
        return np.empty((len(h), 0), dtype=np.int32), np.asarray(h, np.int64), np.asarray(w, np.int64)

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """Say for each clip whether the operation leaves its frames as they are, so that it can be left out.

        Args:
            params: from ``parse``.
            rows: from ``resolve``.
            h: heights of the frames that come in.
            w: widths, likewise.
        """
        return np.zeros(len(rows), dtype=np.bool_)

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """Return the size of every frame that goes out, or None if it depends on the clip.

        Args:
            params: from ``parse``.
            size: the size of every frame that comes in, or None if that depends on the clip.
        """
        return None if self.sizes else size

    def size_hint(self, params: Params) -> str:
        """Say why the size that goes out depends on the clip; only asked of operations for which it does."""
        return "its output size depends on the clip"

    def out_frames(self, params: Params, frames: int) -> int:
        """Return how many frames a clip has after the operation, given how many it had."""
        return frames

    def is_to_blame(self, error: Exception) -> bool:
        """Whether an exception of its code is to be told as `OpFailed`: the code is not viewcache's own."""
        return not is_ours(type(self)) and not isinstance(error, OpFailed)


class FrameOp(Op):
    """An operation on the pixels of one frame; all frames of a clip get the same row."""

    stage: ClassVar[Stage] = "frame"

    @abstractmethod
    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Apply it to one frame.

        Args:
            params: from ``parse``.
            row: the clip's row of ``resolve``, (len(columns),) int32.
            frame: (3, H, W) uint8 RGB, maybe a view with any strides; never written to.

        Returns:
            (3, h, w) uint8: a view of ``frame`` or a new array. The caller copies it into the clip's buffer.
        """

    def window(self, row: np.ndarray) -> tuple[int, int, int, int] | None:
        """(y, x, h, w) where all that it does is to take that part of a frame; None where it does more."""
        return None

    def run(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """`apply`, held to its contract; arguments and result are the same.

        Raises:
            OpFailed: it raised an error, or what it gave is not (3, h, w) uint8.
        """
        given = frame.view()
        given.flags.writeable = False  # other clips take the same frame
        try:
            out: object = self.apply(params, row, given)
        except Exception as error:  # a user's code may raise anything
            if not self.is_to_blame(error):
                raise
            raise op_failed(self.name, params, error) from None
        if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.ndim != 3 or len(out) != len(frame):
            got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise OpFailed(
                f"{named(self.name, params)} gave {got} for a frame of {frame.shape}: it must give (3, h, w) uint8"
            )
        return out

    def run_all(self, params: Params, row: np.ndarray, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`run` for several frames of one shape that have the same row."""
        return [self.run(params, row, frame) for frame in frames]


class NativeOp(FrameOp):
    """A resize: it gives its target, so that the dispatcher can do it in the step that converts the decoder's frame."""

    native: ClassVar[bool] = True
    sizes: ClassVar[bool] = True
    is_drawn: ClassVar[bool] = False
    """Whether the size is drawn for each clip, so that its pictures are of use to no other."""

    @abstractmethod
    def target(self, params: Params, row: np.ndarray) -> tuple[int, int, str]:
        """Return height, width and interpolation, the arguments of ``pixels.to_rgb``."""


class ClipOp(Op):
    """An operation on the pixels of a whole clip, whose frames it sees together; of a stack, of each of its views.

    It needs all frames at once, where a `FrameOp` takes each as it is decoded and shares it with other clips.
    """

    stage: ClassVar[Stage] = "clip"

    @abstractmethod
    def apply_clip(self, params: Params, row: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """Apply it to one clip.

        Args:
            params: from ``parse``.
            row: the clip's row of ``resolve``, (len(columns),) int32.
            clip: (T, 3, H, W) uint8 RGB, which it may write to.

        Returns:
            (T, 3, h, w) uint8: ``clip``, a view of it or a new array.
        """

    def run_clip(self, params: Params, row: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """`apply_clip`, held to its contract; arguments and result are the same, but ``clip`` may be read-only.

        Raises:
            OpFailed: it raised an error, or what it gave is not such a clip.
        """
        try:
            out: object = self.apply_clip(params, row, clip if clip.flags.writeable else clip.copy())
        except Exception as error:  # a user's code may raise anything
            if not self.is_to_blame(error):
                raise
            raise op_failed(self.name, params, error) from None
        if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.ndim != 4 or out.shape[:2] != clip.shape[:2]:
            raise self.unlike(params, out, clip)
        return out

    def unlike(self, params: Params, out: object, clip: np.ndarray) -> OpFailed:
        """The error for what is no clip."""
        shape, kind = getattr(out, "shape", None), getattr(out, "dtype", None)
        got = type(out).__name__ if shape is None else f"{kind} {tuple(shape)}"
        frames, channels = clip.shape[:2]
        return OpFailed(
            f"{named(self.name, params)} gave {got} for a clip of {clip.shape}: it must give uint8 ({frames}, "
            f"{channels}, h, w); what makes numbers of another kind belongs behind it: to_dtype, normalize or the "
            "training loop"
        )


class TimeOp(Op):
    """An operation on which frames a clip has and in what order; it touches no pixels."""

    stage: ClassVar[Stage] = "time"

    @abstractmethod
    def frames(self, params: Params, rows: Rows, idx: np.ndarray) -> np.ndarray:
        """Choose among frame numbers.

        Args:
            params: from ``parse``.
            rows: from ``resolve``, (n, len(columns)), or one row.
            idx: frame numbers, (n, F), or (F,) for one row.

        Returns:
            (n, out_frames(params, F)), or without n for one row.
        """


class ReadOp(Op):
    """An operation on a finished batch when it is read; it is not part of what is stored."""

    stage: ClassVar[Stage] = "read"

    @abstractmethod
    def apply_batch(self, params: Params, batch: object) -> object:
        """Apply it to (..., C, H, W), a NumPy array or a torch tensor; return the same kind, new memory."""


_defined_in: "WeakKeyDictionary[type, str | None]" = WeakKeyDictionary()
"""Sources of modules when their classes were defined: what a file has when a cache is opened may not be what runs. None
where there was none to be read."""


def _text_of(cls: type, frame: FrameType) -> str | None:
    """Of the cell of a notebook, or else of the module, that is defining a class just now."""
    try:
        return "\0".join(cell_of(cls, frame)) or _module_source(cls)
    except UnreadableError:
        return None


def _module_source(cls: type) -> str | None:
    module = inspect.getmodule(cls)
    try:
        return None if module is None else inspect.getsource(module)
    except (OSError, TypeError):  # it was typed in
        return None


def _read_later(base: type) -> str | None:
    """The source of a class of which nothing was noted when it was defined."""
    try:
        cells = cells_of_class(base)
    except UnreadableError:
        return None
    if cells:
        return "\0".join(cells)
    if (source := _module_source(base)) is not None:
        check_loaded(sys.modules[base.__module__], source)
    return source


@cache
def _source_fingerprint(cls: type) -> str:
    """Hash the modules that define the class and its bases, except viewcache's own and Python's.

    Once for a class: who edits the file changes what the next process runs, and not what this one has loaded.
    """
    digest = hashlib.blake2b(cls.__qualname__.encode(), digest_size=8)
    for base in cls.__mro__:
        if is_ours(base) or base.__module__ in ("builtins", "abc", "typing"):
            continue
        source = _defined_in[base] if base in _defined_in else _read_later(base)
        if source is None:
            raise BadInput(
                f'op {cls.__name__}: the source of {base.__module__} cannot be read; declare fingerprint = "1" in the '
                "class and raise it with every change of the code"
            )
        digest.update(source.encode())
    return "source-" + digest.hexdigest()


def _with_values(op: Op, source: str) -> str:
    """A fingerprint with what the instance holds; that of the source alone where it holds nothing."""
    try:
        held = held_by(op)
    except UnreadableError as error:
        raise BadInput(
            f'op {type(op).__name__}: {error}; declare fingerprint = "1" in the class and raise it with every change'
        ) from error
    if not held:
        return source
    return "source-" + hashlib.blake2b("\0".join([source, *held]).encode(), digest_size=8).hexdigest()
