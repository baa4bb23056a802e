"""The YAML of a configuration, with a comment why beside each value, and what to do next."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viewcache.api.init.choices import GENERATION, Chosen, choose
from viewcache.api.init.labels import Labels, find_labels, is_split
from viewcache.api.init.looking import Looked, look
from viewcache.api.text import Bar, counted, size
from viewcache.errors import BadInput, Broken
from viewcache.materializer.choices import Media

__all__ = ["Initial", "initial", "write_new"]

STORE = "./.viewcache"
"""Hidden, so that it is no part of the dataset where both are in one folder."""
WIDTH = 110
"""Characters of a line."""


@dataclass(frozen=True, slots=True)
class Initial:
    """A configuration for a folder."""

    looked: Looked
    labels: Labels
    chosen: Chosen
    text: str
    notes: tuple[str, ...]
    """What a person should know besides."""


def initial(folder: str, file: Path, bar: Bar) -> Initial:
    """Look into a folder and say what fits it.

    Args:
        folder: where the videos or images are.
        file: where the configuration will be: paths are seen from its folder.
        bar: told how far looking is.

    Raises:
        NotFound: there is no such folder, or neither a video nor an image in it.
        BadInput: it is a URL, a file, or cannot be read; or ``file`` has no folder.
        BadVideo: none of the files that were looked into can be decoded.
    """
    home = Path(os.path.abspath(file)).parent
    if not home.is_dir():
        raise BadInput(f"{file}: there is no folder {file.parent}; make it first")
    looked = look(folder, bar.at)
    labels = find_labels(looked.folder, looked.paths)
    chosen = choose(looked, home)
    text = "".join(f"{line}\n" for line in _lines(looked, labels, chosen, home))
    return Initial(looked, labels, chosen, text, tuple(_notes(looked, chosen)))


def write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet.

    Raises:
        BadInput: it is there.
        Broken: it cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as there:
        raise BadInput(f"{file} is there already and is left as it is; name another file with -o") from there
    except OSError as error:
        raise Broken(f"cannot write {file}: {error.strerror}; check the folder") from error


def _notes(looked: Looked, chosen: Chosen) -> Iterator[str]:
    if not looked.is_whole:
        yield (
            f"looked into {looked.looked_at} of {len(looked.paths)} {looked.media}s, evenly chosen; "
            "`viewcache lint --scan` looks at all"
        )
    if looked.bad:
        more = f", and {len(looked.bad) - 1} more" if len(looked.bad) > 1 else ""
        yield f"left out by on_bad_{looked.media}: skip: {looked.bad[0]}{more}"
    if chosen.smaller:
        side, are = chosen.short_side, "is" if chosen.smaller == 1 else "are"
        yield (
            f"{chosen.smaller} of {counted(len(looked.facts), looked.media)} looked into {are} enlarged, with a short "
            f'side below {side}; where: "width >= {side} and height >= {side}" leaves such out'
        )
    if is_split(looked.paths):
        yield "its folders look like parts of a dataset: run init on the one for training, and on the other with -o"


def _lines(looked: Looked, labels: Labels, chosen: Chosen, home: Path) -> Iterator[str]:
    yield from _wrapped("# ", f"Written by `viewcache init`: {_about(looked)}")
    yield from _wrapped("# ", "docs/config.md has all keys; `viewcache lint` checks what you change.")
    yield "cache:"
    yield from _key("store", STORE, "what is made lies in this folder beside this file; it may be deleted at any time")
    free = f"{size(chosen.free_bytes)} are free here"
    kept = "resized images" if looked.media == Media.IMAGE else f"clips of {GENERATION} epochs"
    if chosen.budget_bytes < chosen.need_bytes:
        why = f"half of what is free ({free}); all {kept} would take {size(chosen.need_bytes)}"
    else:
        why = f"the {kept} take up to {size(chosen.need_bytes)}; {free}"
    yield from _key("budget", _bytes(chosen.budget_bytes), f"most bytes of it: {why}")
    yield from _key("epochs_per_generation", GENERATION, "epochs that are planned, and decoded for, at once")
    yield "dataset:"
    yield from _key("tag", "train", "the task's name: view://train/..., cache.loader('train')")
    yield from _key(
        "input_source", "file", f"the {looked.media}s that are there now; `streaming` is for a folder that grows"
    )
    path = _seen_from(looked.folder, home)
    yield from _key(
        f"{looked.media}_dataset_path", path, f"{counted(len(looked.paths), looked.media)}, in subfolders too"
    )
    yield from _label_lines(looked, labels, home)
    yield from _key(
        "epochs", chosen.epochs, f"how often training reads each {looked.media}; may be changed at any time"
    )
    yield from _policy_lines(looked, chosen)
    yield from _sampling_lines(looked, chosen)
    yield from _step_lines(looked, chosen)


def _about(looked: Looked) -> str:
    facts = looked.facts
    rates = sorted(round(each.fps, 2) for each in facts)
    lengths = sorted(each.duration_s for each in facts)
    sizes = sorted(((h * w, f"{w}x{h}") for h, w in (each.shown_size for each in facts)))
    part = "all" if looked.is_whole else f"{looked.looked_at} evenly chosen"
    if looked.media == Media.IMAGE:
        pixels = _range(sizes[0][1], sizes[-1][1])
        return f"by the headers of {part} of {counted(len(looked.paths), 'image')}, which have {pixels} pixels."
    return (
        f"by the headers of {part} of {counted(len(looked.paths), 'video')}, which have "
        f"{_range(f'{rates[0]:g}', f'{rates[-1]:g}')} frames a second and {_range(sizes[0][1], sizes[-1][1])} pixels, "
        f"and are {_range(f'{lengths[0]:.3g}', f'{lengths[-1]:.3g}')} seconds long."
    )


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _label_lines(looked: Looked, labels: Labels, home: Path) -> Iterator[str]:
    if labels.source == "folders":
        one = "an image" if looked.media == Media.IMAGE else "a video"
        why = f"the folder that {one} lies in is its class: {labels.classes} classes"
        yield from _key("labels", "folders", why)
    elif labels.source:
        of_all = f"names {labels.named} of {len(looked.paths)} {looked.media}s"
        more = f"; its columns {', '.join(map(json.dumps, labels.others))} can be queried" if labels.others else ""
        yield from _key("labels", _seen_from(Path(labels.source), home), f"a table that {of_all}{more}")
        why = f"which of its columns names the {looked.media}"
        yield from _key(f"label_{looked.media}_column", labels.video_column, why)
        if labels.label_column:
            yield from _key("label_column", labels.label_column, f"the class: {labels.classes} different values")
        else:
            yield from _wrapped("  # ", "label_column: NAME  would say which of its columns is the class.")
    else:
        why = "No labels were found. Classes by folder: labels: folders; by table: labels: FILE.csv or FILE.parquet."
        yield from _wrapped("  # ", why)


def _policy_lines(looked: Looked, chosen: Chosen) -> Iterator[str]:
    on_bad = f"on_bad_{looked.media}"
    if looked.bad:
        are = "is" if len(looked.bad) == 1 else "are"
        why = f"{len(looked.bad)} of {looked.looked_at} cannot be decoded and {are} left out; `raise` makes it an error"
        yield from _key(on_bad, "skip", why)
    elif not looked.is_whole:
        yield from _key(on_bad, "skip", f"not every {looked.media} was looked into; `raise` makes a bad one an error")
    else:
        yield from _key(on_bad, "raise", "no bad one was found: a new one is told; `skip` leaves it out")
    if looked.media == Media.IMAGE:
        return
    if chosen.shorter:
        why = f"{chosen.shorter} of {len(looked.facts)} videos are shorter than a clip and repeat their last frame"
    else:
        why = "no video that was looked into is shorter than a clip; one that is repeats its last frame"
    yield from _key("on_short_video", "clamp", f"{why}; `skip` leaves them out")


def _sampling_lines(looked: Looked, chosen: Chosen) -> Iterator[str]:
    yield "  sampling:"
    why = f"{looked.media}s in a batch" + (": all there are" if chosen.is_all else "")
    yield from _key(f"{looked.media}s_per_batch", chosen.batch, why, 4)
    if looked.media == Media.IMAGE:
        return
    if chosen.fps:
        yield from _key("clip_seconds", f"{chosen.clip_s:g}", "of a clip; nine of ten videos are as long", 4)
        yield from _key("fps", f"{chosen.fps:g}", "of a clip, as rates differ; the slowest video has as many", 4)
    else:
        yield from _key("frames_per_video", chosen.frames, "of a clip; nine of ten videos are long enough", 4)
        yield from _key("frame_stride", chosen.stride, "every n-th frame; all videos have about one rate", 4)
    yield from _key("samples_per_video", 1, "clips of a video in an epoch; more cost little, as frames are shared", 4)


def _step_lines(looked: Looked, chosen: Chosen) -> Iterator[str]:
    smallest = min(min(each.shown_size) for each in looked.facts)
    things = "pictures" if looked.media == Media.IMAGE else "clips"
    yield "  augmentation:"
    for name, inputs, outputs in (("resize", "frame", "a0"), ("crop", "a0", "a1")):
        yield f"  - name: {name}"
        yield "    branch_type: single"
        yield f"    inputs: [{inputs}]{'  # what the decoder makes' if inputs == 'frame' else ''}"
        yield f"    outputs: [{outputs}]"
        yield "    config:"
        if name == "resize":
            why = f"the smallest {looked.media}'s short side is {smallest}"
            if chosen.smaller:
                why += f"; nine of ten have {chosen.short_side} or more, smaller ones are enlarged"
            yield from _item(f"resize: {{short_side: {chosen.short_side}}}", why)
        else:
            yield from _item(
                f"random_crop: {{shape: [{chosen.crop}, {chosen.crop}]}}", "what a model gets: height, width"
            )
            yield from _item(
                "flip: {flip_prob: 0.5}", f"half of the {things}; leave it out where left and right matter"
            )


def _key(name: str, value: object, why: str, indent: int = 2) -> Iterator[str]:
    yield from _beside(f"{' ' * indent}{name}: {_scalar(value)}", why, indent)


def _item(text: str, why: str) -> Iterator[str]:
    yield from _beside(f"    - {text}", why, 4)


def _beside(line: str, why: str, indent: int) -> Iterator[str]:
    """The comment at the end of the line, or above it where it is too long."""
    if len(line) + len(why) + 4 <= WIDTH:
        yield f"{line}  # {why}"
    else:
        yield from _wrapped(f"{' ' * indent}# ", why)
        yield line


def _wrapped(before: str, text: str) -> Iterator[str]:
    now = before.rstrip()
    for word in text.split():
        if len(now) + len(word) + 1 > WIDTH:
            yield now
            now = before.rstrip()
        now += f" {word}"
    yield now


def _scalar(value: object) -> str:
    """A value as YAML; what is not plain to everybody is quoted."""
    text = str(value)
    return text if re.fullmatch(r"[./A-Za-z0-9][\w./-]*", text, re.ASCII) else json.dumps(text, ensure_ascii=False)


def _bytes(count: int) -> str:
    return f"{count // 10**9}GB" if count % 10**9 == 0 else f"{count // 10**6}MB"


def _seen_from(path: Path, home: Path) -> str:
    """A path as a file in ``home`` says it: relative below it, else absolute."""
    if path == home:
        return "."
    return f"./{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
