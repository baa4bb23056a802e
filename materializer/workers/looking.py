"""What a job learns of its video before it decodes, and whether what was planned of it goes with that."""

from viewcache.errors import BadVideo
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.picture_head import is_picture, picture_index
from viewcache.materializer.media.probe import probe_source
from viewcache.materializer.media.reaching import CHANGED, OutOfReach
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.lossy import LossySteps
from viewcache.materializer.workers.near import JobSource

__all__ = ["look", "unfit"]


def look(job: Job, source: JobSource) -> Scanned:
    """Look at every packet of a video that came without its index.

    Raises:
        BadVideo: it was found bad before, or cannot be reached now.
    """
    claims = job.claims
    assert claims is not None  # who has no index has these
    if claims.error:
        raise BadVideo(claims.error)
    try:
        if is_picture(job.uri):
            index = picture_index(source.opened(), claims.max_pixels, as_stored=claims.as_stored)
        else:
            index = probe_source(source.opened(), claims.max_pixels)
    except OutOfReach:
        raise
    except BadVideo as bad:
        return Scanned(error=str(bad))
    if not index.stamp.same(claims.stamp):
        raise BadVideo(f"{job.file}: {CHANGED}")
    return Scanned.of(job.uri, index)


def unfit(recipe: Recipe, index: VideoIndex, steps: LossySteps) -> str:
    """Why an object cannot be made of a video as it is; empty if it can.

    Its header may have told of other frames than it has. Its clips are planned again then, but for those whose policy
    for short videos cannot help; pictures that were to be kept are still those that the header told of.
    """
    last = int(recipe.frames.max())
    if last >= index.frames:
        return f"has {index.frames} frames; a clip was planned up to frame {last}"
    if recipe.codec == LOSSY and not steps.are_whole(recipe):
        return f"has {index.frames} frames, of which other ones are encoded together than was planned"
    return ""
