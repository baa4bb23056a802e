"""Pictures of one image, for a job of several: made here where that is plain, without a job for each image.

What a job of its own does for a video costs an image as much as its decoding. So an image is done here if it is the
file that its header promised, and nothing about it asks for more: no op worker, no allowed loss, no network. Whatever
goes wrong, nothing is said of it here: the image has a job of its own then, and that says what it is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from viewcache.materializer.media.decode import decode_picture
from viewcache.materializer.media.head import Seen
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.picture_head import is_picture, packet_index, picture_index
from viewcache.materializer.media.source import Source, Stamp, is_local, open_source
from viewcache.materializer.media.whole import WholeSource
from viewcache.materializer.ops.lossy import LOSSY_OP
from viewcache.materializer.planning.program import FrameStep, FrameTree, finish, grow
from viewcache.materializer.planning.recipe import Intermediate, Recipe, VideoSource
from viewcache.materializer.workers.frame import Frame, PhaseClock, copy_picture
from viewcache.materializer.workers.intermediates import IntermediateReader, operation_of, root_of
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.memory import OwnersMemory
from viewcache.store import ENCODED

__all__ = ["Image", "Keep", "PictureMaker"]

Keep = Callable[[str, np.ndarray, Mapping[str, object]], None]
"""Takes a picture to be kept: its content key, uint8 (1,3,h,w), and what it says of itself."""


@dataclass(slots=True)
class Image:
    """What is made of one image."""

    source: VideoSource
    beside: list[Recipe] = field(default_factory=list)
    """What is to be kept of it."""
    parts: dict[int, Recipe] = field(default_factory=dict)
    """Place in the block → the picture that is made of it there; several of an image that comes several times."""

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """All that is made of it: where nothing is drawn, pictures of several places are one."""
        return (*{part.key: part for part in self.parts.values()}.values(), *self.beside)


class PictureMaker:
    """Makes pictures of one image after the other."""

    def __init__(self, job: Job, memory: OwnersMemory, clock: PhaseClock, pictures: np.ndarray) -> None:
        """Take where pictures go.

        Args:
            job: of the images.
            memory: has those kept pictures that do not lie in the job's target.
            clock: is charged.
            pictures: uint8 (places, T,C,H,W) of the block.
        """
        self._target, self._memory, self._clock = job.target, memory, clock
        self._pictures = pictures
        self.frames = Counter[str]()
        """What was loaded, decoded and converted, as `Report.frames` has it, of all pictures made here."""
        self.picture_bytes = 0
        """Of what was decoded, at 4:2:0."""
        self.damaged: list[str] = []
        """Keys of kept pictures whose copy in the local tier is damaged."""
        self.damaged_in_memory: list[str] = []
        """The same of copies in memory."""

    def from_kept(self, image: Image, kept: Sequence[Intermediate]) -> set[int]:
        """Make those pictures of the block that what is kept of an image is enough for; their places."""
        claims, done = image.source.claims, set[int]()
        # Pictures behind the first operation need nothing of the file: neither its orientation nor its colours.
        if not image.parts or not kept or not all(each.program.instructions for each in kept):
            return done
        if claims is None or claims.error or any(part.program.is_remote for part in image.parts.values()):
            return done
        index = _claimed(claims.width, claims.height, claims.pix_fmt)
        reader = IntermediateReader(self._target, self._memory, kept, index)
        frame = Frame(None, index, self._clock)
        read: set[FrameStep | None] = set()
        try:
            for place, part in image.parts.items():
                tree = grow(part.program, part.frames, part.row)
                roots = {root_of(node) for leaf in tree.leaves() for node in leaf.nodes}
                if not roots <= read:
                    made = reader.read(0, roots)
                    self._clock.lap("load")
                    if not made:
                        break
                    frame, read = Frame(None, index, self._clock, made), roots
                if not self._fill(tree, frame, self._pictures[place]):
                    break
                done.add(place)
        except Exception:  # its own job fails alike, and says what it was
            self._clock.lap("load")
        self.damaged += reader.damaged
        self.damaged_in_memory += reader.damaged_in_memory
        if done:
            self.frames.update(reader.counts())
        return done

    def decoded(self, image: Image, keep: Keep) -> bool:
        """Decode an image and make all that is wanted of it; False if it needs a job of its own.

        ``keep`` takes pictures to be kept.
        """
        source, parts = image.source, image.parts
        # One that lies far away is fetched by its own job alone, which says how long that took.
        if not is_local(source.uri) or any(_asks_for_more(recipe) for recipe in image.recipes):
            return False
        converted = self._clock.converted
        try:
            with open_source(source.uri) as opened:
                file = WholeSource(opened)
                index = _looked_at(source, file)
                picture = None if index is None else decode_picture(file, index)
            self._clock.lap("decode")
            if index is None or picture is None:
                return False
            frame = Frame(picture, index, self._clock)
            kept = [frame.at(operation_of(recipe.program, recipe.row.tobytes()))[None] for recipe in image.beside]
            is_planned = all(made.shape == recipe.shape for made, recipe in zip(kept, image.beside, strict=True))
            if not is_planned or not all(
                self._fill(grow(part.program, part.frames, part.row), frame, self._pictures[place])
                for place, part in parts.items()
            ):
                return False
        except Exception:  # its own job fails alike, and says what it was
            self._clock.lap("decode")
            return False
        finally:
            converted, self._clock.converted = self._clock.converted - converted, converted
        for made, recipe in zip(kept, image.beside, strict=True):  # nothing of an image that fails goes into a pack
            keep(recipe.key, made, recipe.about(source.name, source.key))
        self._clock.lap("augment")
        self.frames.update(packets=1, decoded=1, wanted=1, bytes_read=file.bytes_read, converted=converted)
        self.picture_bytes += index.width * index.height * 3 // 2
        return True

    def _fill(self, tree: FrameTree, frame: Frame, out: np.ndarray) -> bool:
        """Make a picture of the block into its place; False if it has another shape."""
        if tree.by_frame and len(tree.nodes) == 1:  # most often: what the operations gave is copied once
            picture, out = frame.at(tree.nodes[0]), out[0]
        else:
            leaves = tree.leaves()
            arrays = {id(leaf): np.stack([frame.at(node) for node in leaf.nodes]) for leaf in leaves}
            if len(arrays) < len(leaves):  # others may begin with the same: nobody may write to it
                for array in arrays.values():
                    array.flags.writeable = False
            picture = finish(tree, arrays)
        if picture.shape != out.shape:
            return False
        copy_picture(out, picture)
        self._clock.lap("augment")
        return True


def _asks_for_more(recipe: Recipe) -> bool:
    """Whether making it takes more than a decoded picture and operations of this process."""
    program = recipe.program
    return (
        recipe.native
        or recipe.codec in ENCODED
        or program.is_remote
        or any(each.name == LOSSY_OP for each in program.instructions)
    )


def _looked_at(source: VideoSource, file: Source) -> VideoIndex | None:
    """The index of an image that is as its header said; None: its job says what is wrong.

    Raises:
        BadVideo: it cannot be decoded.
    """
    claims = source.claims
    if claims is None or claims.error or not is_picture(source.uri):
        return None
    index = picture_index(file, claims.max_pixels, as_stored=claims.as_stored)
    is_same = (*index.shown_size, index.pix_fmt) == (claims.height, claims.width, claims.pix_fmt)
    return index if is_same and index.stamp.same(claims.stamp) else None


@lru_cache
def _claimed(width: int, height: int, pix_fmt: str) -> VideoIndex:
    """An index of an image that is not opened, by what its header said; of kept pictures its size is asked alone."""
    return packet_index(Seen("jpeg", width, height, pix_fmt, 2, 0, 1), Stamp(0), 0)
