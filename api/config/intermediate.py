"""Read ``dataset.intermediate``: the loss that a task allows becomes an operation behind its first resize."""

from collections.abc import Sequence
from dataclasses import replace

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS
from viewcache.api.config.steps import told
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import Broken, ConfigCode
from viewcache.materializer import ops
from viewcache.materializer.choices import BranchType
from viewcache.materializer.media.loss import Loss
from viewcache.materializer.ops.lossy import LOSSY_OP, lossy_params
from viewcache.materializer.planning.graph import SOURCE
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import OpCall, StepSpec

__all__ = ["with_intermediate"]


def with_intermediate(entries: Entries, steps: Sequence[StepSpec], sampling: SamplingSpec) -> tuple[StepSpec, ...]:
    """The steps of a task, with the loss that its ``intermediate`` allows.

    Args:
        entries: the task's mapping.
        steps: in the order of work.
        sampling: of the task.

    Raises:
        ConfigError: no quality is given or two are; the steps do not begin with a resize; there is no encoder.
        Refused: what is wrong was reported.
    """
    if not entries.has("intermediate"):
        return tuple(steps)
    section = SECTIONS["intermediate"]
    own = Entries(entries.child("intermediate"), section, entries.name_of("intermediate"), entries.problems)
    read = own.values(*(key.name for key in section.keys))
    place = own.node.place
    if (read["quality"] is None) == (read["crf"] is None):
        why = "give one of quality (as 45dB) and crf (as 18)" + "; both are given" * (read["crf"] is not None)
        code = ConfigCode.MISSING_KEY if read["crf"] is None else ConfigCode.GIVEN_TWICE
        raise error_at(place, code, f"{own.label}: {why}")
    readers = [step for step in steps if SOURCE in step.inputs]
    first = readers[0] if len(readers) == 1 and readers[0].branch_type == BranchType.SINGLE else None
    if first is None or not first.ops or not ops.get(first.ops[0].name).native:
        why = (
            "a loss is allowed for resized pictures only, since at the size of the video its file is the smallest: let "
            "augmentation begin with one step of type single whose first operation is resize or random_short_side"
        )
        raise error_at(place, ConfigCode.MISPLACED_KEY, f"{own.label}: {why}")
    # Imported here because it loads the decoder's libraries, which reading a configuration does not need.
    from viewcache.materializer.media.lossy import encoder_version

    stride = 1 if sampling.by_time else sampling.frame_stride
    try:
        params = lossy_params(Loss(read["crf"], read["quality"]), encoder_version(), stride)
    except Broken as missing:
        raise error_at(place, ConfigCode.MISSING_ENCODER, f"{own.label}: {told(missing)}") from missing
    resize, *others = first.ops
    lossy = replace(first, ops=(resize, OpCall(LOSSY_OP, params, place), *others))
    return tuple(lossy if step is first else step for step in steps)
