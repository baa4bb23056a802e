"""Checks whether the clips of a task's batches can be mixed (``mixup``, ``cutmix``, ``mix_video``)."""

from collections.abc import Sequence

from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer import ops
from viewcache.materializer.ops.mix import MixOp
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import DatasetSpec, StepSpec

__all__ = ["check_mixing"]


def check_mixing(dataset: DatasetSpec, sampling: SamplingSpec, steps: Sequence[StepSpec]) -> None:
    """Refuse to mix clips that have no labels or nobody to be mixed with, or to mix twice.

    Raises:
        ConfigError: at the operation.
    """
    mixing = [call for step in steps for call in step.calls if isinstance(ops.get(call.name), MixOp)]
    if not mixing:
        return
    call, *more = mixing
    if more:
        why = f"clips are mixed once, by {call.name} already; mix_video draws one of mixup and cutmix for each batch"
        raise error_at(more[0].place, ConfigCode.GIVEN_TWICE, f"{more[0].name}: {why}")
    if dataset.labels is None:
        why = "it mixes labels, and the dataset has none: give labels, as `labels: folders`"
        raise error_at(call.place, ConfigCode.MISSING_KEY, f"{call.name}: {why}")
    if sampling.videos_per_batch < 2:
        why = f"it mixes the clips of two {dataset.media}s, and {dataset.media}s_per_batch is 1: at least 2"
        raise error_at(call.place, ConfigCode.OUT_OF_RANGE, f"{call.name}: {why}")
    if dataset.grows and not dataset.classes and dict(call.params)["num_classes"] is None:
        why = f"classes may join a dataset that grows, so say how many there may be: {call.name}: {{num_classes: …}}"
        raise error_at(call.place, ConfigCode.MISSING_KEY, f"{call.name}: {why}")
