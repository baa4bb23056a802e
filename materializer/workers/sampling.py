"""The codec of an object that is about to be stored, by what a sample of it says where the job asks for that."""

import math

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.clock import Clock
from viewcache.materializer.planning.recipe import Recipe
from viewcache.store.codec_trial import Trial

__all__ = ["codec_for"]


def codec_for(recipe: Recipe, array: NDArray[np.uint8], clock: Clock, trials: list[Trial]) -> str:
    """The codec of an object, a name of `viewcache.store.CODECS`.

    Args:
        recipe: of the object.
        array: the object, contiguous.
        clock: the time for a sample is charged to trying codecs, that for loading their libraries to storing.
        trials: of the job so far, which may do; a sample is added to these.
    """
    if recipe.codecs is None:
        return recipe.codec
    clock.lap("store")
    chosen = recipe.codecs.choose(array, math.prod(recipe.chunk_shape), trials, lambda: clock.lap("store"))
    trials += chosen.samples
    clock.lap("trial")
    return chosen.codec
