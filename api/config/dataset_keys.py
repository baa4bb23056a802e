"""The keys of ``dataset``: one training task, part of the table in ``keys``."""

from viewcache.api.config.kinds import REQUIRED, Key, KeySection
from viewcache.materializer.choices import (
    Exif,
    InputSource,
    Join,
    Layout,
    OnBadVideo,
    OnChangedVideo,
    OnLowFps,
    OnMissingVideo,
    OnShortVideo,
    ProbeMode,
)

__all__ = ["DATASET", "MOST_SEED"]

MOST_SEED = 2**63 - 1
"""What a BIGINT column holds."""

DATASET = KeySection(
    "dataset",
    "dataset",
    "One training task: its videos, how clips are drawn from them and what is done to the frames.",
    (
        Key("tag", "name", "The task's name in paths: `view://{tag}/…`. Each task has its own.", REQUIRED),
        Key(
            "input_source",
            "choice",
            "`file`: the videos that are there when the cache is opened. `streaming`: a folder or prefix that grows; "
            "it is listed again while the cache is open, and new videos join as `join` says. See docs/streaming.md.",
            InputSource.FILE,
            choices=tuple(InputSource),
        ),
        Key(
            "join",
            "choice",
            "With `streaming`, when new videos join. `generation`: at the next generation that is not drawn; `epoch`: "
            "at the next epoch that is not drawn, for which each epoch is a generation of its own, so that its videos "
            "are decoded once for each epoch.",
            Join.GENERATION,
            choices=tuple(Join),
        ),
        Key(
            "settle",
            "number",
            "With `streaming`, seconds for which nobody has written to a file before its video joins. A file whose "
            "header cannot be read yet is asked again for thirty times as long, then it is a bad video. May change "
            "from run to run.",
            2.0,
            least=0.0,
            most=86_400.0,
        ),
        Key(
            "video_dataset_path",
            "urls",
            "The videos: a folder (searched with its subfolders), a glob or an fsspec URL; a list of several; or a "
            "`.txt` file that names one on each line. docs/living.md says how videos are named then. A task of images "
            "has `image_dataset_path` in its place.",
            REQUIRED,
        ),
        Key(
            "image_dataset_path",
            "urls",
            "The images (JPEG, PNG, WebP or BMP), in the place of `video_dataset_path` and named in the same ways: "
            "each is a video of one frame, and batches have no time axis. See docs/images.md.",
            None,
            "a task of videos",
        ),
        Key(
            "follow_links",
            "flag",
            "Whether symbolic links below a folder are followed into the dataset's other folders and those of "
            "`link_roots`. May change from run to run.",
            False,
        ),
        Key(
            "link_roots",
            "folders",
            "With `follow_links`, local folders that links may lead into besides.",
            (),
            "none",
        ),
        Key(
            "remote",
            "flag_or_auto",
            "Whether the videos lie far away, so that their encoded files may be kept near as far as that saves time. "
            "`auto`: those behind a URL, and on network file systems (NFS, CIFS, Lustre, FUSE and their like). Decides "
            "no view. May change from run to run. See docs/keeping.md.",
            None,
            "`auto`",
        ),
        Key(
            "sampling",
            "section",
            "Which frames make a clip, and how many clips make a batch.",
            REQUIRED,
            section="sampling",
        ),
        Key(
            "audio",
            "section",
            "The audio that comes with each clip.",
            None,
            "none",
            section="audio",
        ),
        Key(
            "intermediate",
            "section",
            "Loss that is allowed, so that less is kept and less is read.",
            None,
            "none: every bit is kept",
            section="intermediate",
        ),
        Key(
            "augmentation",
            "sections",
            "Steps from decoded frames to finished clips; without any, clips are the decoded frames.",
            (),
            "none",
            section="step",
        ),
        Key(
            "labels",
            "url",
            "A table with a row per video or segment, `.csv`, `.parquet` or `.jsonl` (also `.ndjson`: JSON lines); or "
            "`folders`: the parent folder's name is the label. See docs/labels.md.",
            None,
            "none",
        ),
        Key("label_video_column", "text", "Column of the table that names the video.", "video"),
        Key("label_image_column", "text", "Column of the table that names the image, of a task of images.", "image"),
        Key(
            "label_column",
            "text",
            "Column of the table that is the label; a list in it is several labels of one video. Further columns can "
            "be queried, and come with a batch by `fields`.",
            "label",
        ),
        Key(
            "label_separator",
            "text",
            "What stands between the labels in a column of text, such as `;`: videos have several labels.",
            None,
            "one label a video",
        ),
        Key(
            "classes",
            "classes",
            "Names of the labels, whose numbers are their places in it: a list, or a text file with one name a line. "
            "Tasks with the same list have the same numbers, whatever labels their videos have. A label of the "
            "selected videos that is not in it is an error.",
            (),
            "the labels that there are, sorted",
        ),
        Key(
            "fields",
            "columns",
            "Further columns of the table that come with each clip of a batch, under their names: numbers as arrays, "
            "text as lists, lists as arrays or as values and offsets. May change from run to run.",
            (),
            "none",
        ),
        Key(
            "label_start_column",
            "text",
            "Column of the table that says where a row's segment of its video begins, in seconds. With it or the next "
            "one a video may have several rows, each of which is drawn by itself; see docs/segments.md.",
            "start_s",
        ),
        Key("label_end_column", "text", "The same of where the segment ends; its last frame is before that.", "end_s"),
        Key("where", "text", "SQL condition over the dataset's columns that chooses the videos.", None, "all videos"),
        Key(
            "split",
            "section",
            "How the videos are parted into training, validation and test; the task has those of `part`.",
            None,
            "all videos",
            section="split",
        ),
        Key(
            "part",
            "title",
            "Which part of `split` the task has: `train`, `val` or `test`; with `split.column` a value of the column.",
            None,
            "all videos",
        ),
        Key(
            "weight",
            "text",
            "Column of the label table that says how often a video comes in an epoch: of 1.5 once or twice, by lot. An "
            "epoch has as many clips as the weights add up to, rounded. See docs/labels.md.",
            None,
            "each video once",
        ),
        Key(
            "balance",
            "text",
            "Column of which each value comes equally often in an epoch, which stays as long: `label`.",
            None,
            "each video once",
        ),
        Key(
            "mix",
            "shares",
            "Shares in which an epoch, which stays as long, has the places of `video_dataset_path`, or the values of "
            "`mix_column`: `{kinetics: 0.7, ssv2: 0.3}`. They need not add up to 1. See docs/labels.md.",
            (),
            "each video once",
        ),
        Key(
            "mix_column",
            "text",
            "Column whose values `mix` names: `root`, the places of the dataset, or one of the label table.",
            "root",
        ),
        Key("epochs", "integer", "Epochs that the task runs for.", 1, least=1, most=1_000_000),
        Key(
            "seed",
            "integer",
            "Seed of the task's random choices.",
            None,
            "`cache.seed`",
            least=0,
            most=MOST_SEED,
        ),
        Key(
            "shuffle",
            "flag",
            "Whether each epoch has an order of its own. `false`: videos come in the order of their names, as for "
            "validation; such a task shares decoding with others, but no order.",
            True,
        ),
        Key("drop_last", "flag", "Whether the last, smaller batch of an epoch is left out.", False),
        Key(
            "layout",
            "choice",
            "Axis order of the loader's tensors, as strided views; `CHW` and `HWC` are for images.",
            Layout.TCHW,
            "`TCHW`; of images `CHW`",
            choices=tuple(Layout),
        ),
        Key(
            "on_bad_video",
            "choice",
            "What a video that cannot be decoded does: an error, no sample, or another video in its place. Damage that "
            "only decoding shows is replaced with `skip` too, because its place is already drawn.",
            OnBadVideo.RAISE,
            choices=tuple(OnBadVideo),
        ),
        Key(
            "on_bad_image",
            "choice",
            "The same of an image.",
            OnBadVideo.RAISE,
            choices=tuple(OnBadVideo),
        ),
        Key(
            "exif",
            "choice",
            "Of images, what becomes of the orientation that their EXIF data tell. `apply`: they are turned and "
            "mirrored as viewers show them; `ignore`: they are taken as they are stored.",
            Exif.APPLY,
            choices=tuple(Exif),
        ),
        Key(
            "on_short_video",
            "choice",
            "What a video shorter than a clip does: repeat the last frame, start again, or give no sample.",
            OnShortVideo.CLAMP,
            choices=tuple(OnShortVideo),
        ),
        Key(
            "on_low_fps",
            "choice",
            "With `sampling.fps`, what a video with fewer frames a second does: show frames more than once, or count "
            "as a bad video, as `on_bad_video` says.",
            OnLowFps.REPEAT,
            choices=tuple(OnLowFps),
        ),
        Key(
            "on_changed_video",
            "choice",
            "What a file does that was replaced by other content after its video was drawn. `raise`: an error when the "
            "cache is opened. `warn`: a warning and a row in `errors`, and its views show the new content. `version`: "
            "it is a new video from then on, and what was drawn of the old one is treated as of a video that is gone. "
            "May change from run to run.",
            OnChangedVideo.RAISE,
            choices=tuple(OnChangedVideo),
        ),
        Key(
            "on_missing_video",
            "choice",
            "What a drawn video does whose file is gone. Clips of it that are in the store are given as before. For "
            "the others another video stands in, which is recorded and told (`replace`), or reading is an error "
            "(`raise`). May change from run to run.",
            OnMissingVideo.REPLACE,
            choices=tuple(OnMissingVideo),
        ),
        Key(
            "probe",
            "choice",
            "How thoroughly a new file is looked into when the cache is opened: `lazy` by its header where that tells "
            "enough (MP4, QuickTime), and its packets when the video is decoded first; `full` reads every packet of "
            "every file. Decides no view. May change from run to run.",
            ProbeMode.LAZY,
            choices=(ProbeMode.LAZY, ProbeMode.FULL),
        ),
        Key(
            "max_pixels",
            "integer",
            "Pixels of a frame; a larger one is a bad video and is never decoded.",
            8192 * 4320,
            least=1,
            most=2**31 - 1,
        ),
    ),
)
