"""The one table of configuration keys: what each may hold, its default and what it means.

Trade-off: a small table of our own instead of a validation library, because every error must carry a place in a file
and nothing about a key may be written twice. Validation, the hints in errors, docs/config.md and the JSON Schema
(``schema.py``) all come from it.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from viewcache.api.config.audio_keys import AUDIO
from viewcache.api.config.dataset_keys import DATASET, MOST_SEED
from viewcache.api.config.eviction_keys import EVICTION
from viewcache.api.config.intermediate_keys import INTERMEDIATE
from viewcache.api.config.kinds import DECIBELS, KINDS, MODULE, NAME, REQUIRED, SIZE, Key, KeySection, ValueKind
from viewcache.api.config.op_worker_keys import OP_WORKER, OP_WORKERS
from viewcache.api.config.power_keys import POWER
from viewcache.api.config.split_keys import SPLIT
from viewcache.materializer.choices import BranchType, Durability, KeepRule, Merge, ServiceMode, WorkerKind
from viewcache.materializer.sampling import ClipSelection, Coordination
from viewcache.suggest import did_you_mean

__all__ = [
    "DECIBELS",
    "KINDS",
    "MODULE",
    "NAME",
    "REQUIRED",
    "SECTIONS",
    "SIZE",
    "STEP_KEYS",
    "Key",
    "KeySection",
    "ValueKind",
    "hint",
]

MOST_COUNT = 1_000_000
MOST_FRAMES = 65_536
"""Of one clip."""


def _count(name: str, doc: str, default: object, default_doc: str = "", least: int = 1, most: int = MOST_COUNT) -> Key:
    return Key(name, "integer", doc, default, default_doc, least=least, most=most)


_DOCUMENT = KeySection(
    "document",
    "",
    "One document of a file. Several documents are separated by a line `---`.",
    (
        Key("cache", "section", "The cache's own settings; once over all documents and files.", section="cache"),
        Key("dataset", "tasks", "One training task, or a list of them.", section="dataset"),
    ),
)

_CACHE = KeySection(
    "cache",
    "cache",
    "Settings of the cache, shared by all tasks. Every key has a default.",
    (
        Key(
            "store",
            "store",
            "Folder that holds the objects, seen from the file's folder, and made in one that is there; or a list of "
            "tiers, one of them a folder.",
            "./.viewcache",
            "`./.viewcache` beside the first file",
            section="tier",
        ),
        Key(
            "catalog",
            "catalog",
            "`duckdb` for a file inside the store's folder, or a `postgresql://` URL without a password "
            "(the password comes from PGPASSWORD or ~/.pgpass).",
            "duckdb",
        ),
        Key(
            "budget",
            "size",
            "Most bytes that objects may take, temporary files included; the catalog's files are not counted.",
            None,
            "50 % of the space that is free or already the store's",
        ),
        Key(
            "memory",
            "size",
            "Most bytes of memory for frames and clips on their way, of all workers together. A quarter of it at most "
            "is for clips that are read once and never stored.",
            None,
            "8 GiB, or half of the machine's memory if that is less",
        ),
        _count("epochs_per_generation", "k: epochs that are planned, and decoded for, at once.", 5, most=10_000),
        _count("seed", "Seed of all random choices of tasks that give none.", 0, least=0, most=MOST_SEED),
        _count(
            "draw_ahead",
            "Iterations that the orders of tasks over one dataset are drawn ahead of their readers. A task alone draws "
            "whole epochs.",
            16,
            most=10_000,
        ),
        Key(
            "keep",
            "choice",
            "What is kept when the budget cannot hold every clip. `cheapest`: for each video its clips, its frames or "
            "nothing, so that making the rest again costs least; `leaves`: clips, soonest first, until the budget is "
            "full; `sand`: Algorithm 1 of the SAND paper.",
            KeepRule.CHEAPEST,
            choices=tuple(KeepRule),
        ),
        Key(
            "mix",
            "share_or_auto",
            "The share of the videos or images of which clips or pictures are kept, as far as the budget holds them; "
            "the others are decoded each time, and every batch has its share of both. `auto` keeps those with which an "
            "epoch takes least time. Only with `keep: cheapest`.",
            None,
            "`auto`",
        ),
        _count("workers", "Workers that decode and make clips; 0 is one per core.", 0, least=0, most=1024),
        Key(
            "worker_kind",
            "choice",
            "What workers are. `processes`: one that crashes, hangs or takes too much memory is replaced, and nothing "
            "else notices; `threads` start at once and share this process's memory, but a decoder that crashes ends "
            "it: for files of your own.",
            WorkerKind.PROCESSES,
            choices=tuple(WorkerKind),
        ),
        Key(
            "eviction",
            "section",
            "What leaves a tier that is full; docs/policies.md says more.",
            None,
            "`demand`, at 95 %",
            section="eviction",
        ),
        Key(
            "durability",
            "choice",
            "`cache`: nothing is forced to disk, reads verify and rebuild; `durable`: forced to disk before it counts.",
            Durability.CACHE,
            choices=tuple(Durability),
        ),
        Key(
            "op_modules",
            "modules",
            "Python modules that register operations of your own. They are imported when the configuration is loaded; "
            "nothing else is.",
            (),
            "none",
        ),
        OP_WORKERS,
        Key(
            "service",
            "choice",
            "Who owns the store. `off`: the process that opens it; `auto`: a service that the first process starts and "
            "all share; `attach`: a service that runs. VIEWCACHE_SERVICE in the environment comes first.",
            ServiceMode.AUTO,
            choices=tuple(ServiceMode),
        ),
        Key(
            "service_idle",
            "number",
            "Seconds that a service goes on after the last process has left it.",
            10,
            least=0,
            most=1_000_000,
        ),
        Key(
            "trace",
            "url",
            "File, `.json` or `.json.gz`, that gets a trace of the run for ui.perfetto.dev, instead of the last run's.",
            None,
            "none",
        ),
        Key("power", "section", "What work takes of energy.", None, "5 W a core", section="power"),
    ),
)

_TIER = KeySection(
    "tier",
    "cache.store[]",
    "One place where bytes lie, when `store` is a list: a local folder, in which objects are made; `memory://` above "
    "it, for what is needed next; an object store below it, for what the folder has no room for. One of a kind, in any "
    "order.",
    (
        Key("url", "url", "Local folder, `memory://`, or a URL of fsspec such as `s3://bucket/folder`.", REQUIRED),
        Key(
            "budget",
            "size",
            "Most bytes of this tier. Memory and object stores need one; for the folder, instead of `cache.budget`.",
            None,
            "`cache.budget`",
        ),
        Key(
            "codec",
            "choice",
            "How chunks are compressed; `auto` chooses for each object by what packing and loading were measured to "
            "cost, and where bytes are short or a disk is waited for by how well a sample of that object packs.",
            "auto",
            choices=("auto", "raw", "lz4", "zstd1"),
        ),
        Key(
            "timeout",
            "number",
            "Seconds until an object store that does not answer is passed over for a while; what lies there is made "
            "again meanwhile.",
            20.0,
            least=0.1,
            most=3600,
        ),
        Key(
            "residents",
            "size_or_auto",
            "Of the memory tier: bytes for pictures that are read in every epoch; those that have a place there keep "
            "it for as long as their generation is read, so that every part of an epoch finds as many. `auto`: all "
            "but what the next batches need, which is at most half of the tier; `0`: none.",
            None,
            "`auto`",
        ),
    ),
)

_SAMPLING = KeySection(
    "sampling",
    "dataset.sampling",
    "Which frames make a clip, and how many clips make a batch.",
    (
        _count("videos_per_batch", "Videos in a batch.", REQUIRED, most=65_536),
        _count(
            "images_per_batch",
            "Images in a batch, in the place of `videos_per_batch`.",
            None,
            "required of images",
            most=65_536,
        ),
        _count("samples_per_image", "Pictures that are made of one image in one epoch.", 1, most=1024),
        _count(
            "frames_per_video",
            "Frames of one clip, before augmentation.",
            None,
            "required, unless `clip_seconds` and `fps` say it",
            most=MOST_FRAMES,
        ),
        _count("frame_stride", "Distance of neighbouring frames of a clip, in frames of the video.", 1, most=65_536),
        Key(
            "fps",
            "number",
            "Frames a second of a clip, in the place of `frame_stride`: clips show the same seconds of every video, "
            "whatever its rate. The frames are those whose presentation times are nearest.",
            None,
            "by frames of the video",
            least=0.001,
            most=1000.0,
        ),
        Key(
            "clip_seconds",
            "number",
            "With `fps`, the length of a clip in seconds, in the place of `frames_per_video`: a clip has a frame at "
            "its start, and every `1 / fps` seconds after it for as long as this.",
            None,
            "`frames_per_video` is given",
            least=0.001,
            most=86_400.0,
        ),
        _count("samples_per_video", "Clips of one video in one epoch.", 1, most=1024),
        Key(
            "clips",
            "choice",
            "Where they start. `random`: anywhere alike, anew in each epoch; `center`: one in the middle; `uniform`: "
            "evenly spaced from the first that fits to the last. Where an operation has a crop for each sample "
            "(`three_crop`), that many samples in a row are of one clip.",
            ClipSelection.RANDOM,
            choices=tuple(ClipSelection),
        ),
        Key(
            "coordination",
            "choice",
            "`shared`: random choices are coordinated over tasks and epochs so that frames are decoded once; "
            "`independent`: the task draws by its own seed and name alone, order and epochs too, and reuses frames "
            "only by chance.",
            Coordination.SHARED,
            choices=tuple(Coordination),
        ),
        Key(
            "spread",
            "number",
            "δ: how far apart, as a fraction of a video, the clips of one generation may start. Small reuses more "
            "frames and varies less from epoch to epoch; each clip alone starts anywhere alike.",
            0.4,
            least=0.001,
            most=1.0,
        ),
    ),
)

_STEP = KeySection(
    "step",
    "dataset.augmentation[]",
    "One step. It reads streams of frames and makes streams; the decoder makes the stream `frame`.",
    (
        Key("name", "title", "What messages and plans call the step.", None, "the name of its first output"),
        Key(
            "branch_type",
            "choice",
            "`single`: operations in a row. `conditional`: the first branch whose condition holds. `random`: one "
            "branch by chance. `multi`: copies of a stream. `merge`: several streams become one.",
            REQUIRED,
            choices=tuple(BranchType),
        ),
        Key("inputs", "names", "Streams that it reads: one; at least two for `merge`.", REQUIRED),
        Key("outputs", "names", "Streams that it makes: one; at least two for `multi`.", REQUIRED),
        Key(
            "config",
            "operations",
            "For `single`: the operations, in order. `None` passes frames on unchanged.",
            None,
            "must be given for `single`",
        ),
        Key(
            "branches",
            "sections",
            "For `conditional` and `random`: the branches.",
            (),
            "must be given for these",
            section="branch",
        ),
        Key(
            "merge",
            "choice",
            "For `merge`: `concat` puts clips one after the other in time, `stack` side by side on a new axis before "
            "time, `mean` averages them.",
            Merge.CONCAT,
            choices=tuple(Merge),
        ),
    ),
)

_BRANCH = KeySection(
    "branch",
    "dataset.augmentation[].branches[]",
    "One branch of a conditional or random step.",
    (
        Key(
            "condition",
            "text",
            "For `conditional`: a comparison of `iteration` or `epoch`, e.g. `iteration > 10000 and epoch < 5`; "
            "the last branch has `else`.",
            None,
            "must be given for `conditional`",
        ),
        Key(
            "prob",
            "number",
            "For `random`: its probability; those of a step sum to 1.",
            None,
            "must be given for `random`",
            least=0.0,
            most=1.0,
        ),
        Key("config", "operations", "The operations, in order. `None` passes frames on unchanged.", REQUIRED),
    ),
)

SECTIONS: dict[str, KeySection] = {
    section.name: section
    for section in (
        _DOCUMENT,
        _CACHE,
        _TIER,
        EVICTION,
        POWER,
        OP_WORKER,
        DATASET,
        SPLIT,
        _SAMPLING,
        AUDIO,
        INTERMEDIATE,
        _STEP,
        _BRANCH,
    )
}

STEP_KEYS: dict[BranchType, tuple[str, ...]] = {
    BranchType.SINGLE: ("config",),
    BranchType.CONDITIONAL: ("branches",),
    BranchType.RANDOM: ("branches",),
    BranchType.MULTI: (),
    BranchType.MERGE: ("merge",),
}
"""Which keys a step has beside name, branch_type, inputs and outputs, by its type."""


def hint(wrong: str, known: Iterable[str], elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """Words that name the nearest known word, if one is near, and then all of them; ``elsewhere``: see `suggest`."""
    known = list(known)
    question = did_you_mean(wrong, known, elsewhere)
    return (question and question + " ") + "known: " + ", ".join(known)
