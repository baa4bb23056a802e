"""The registry: built-in operations, custom ones from listed modules and entry points, and nothing else."""

import ast
import importlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import yaml

from tests.ops.draws import draws
from viewcache.errors import BadInput
from viewcache.materializer.ops import (
    REQUIRED,
    ClipOp,
    Field,
    FrameOp,
    Op,
    builtin_names,
    get,
    load_modules,
    names,
    register,
    registry,
)
from viewcache.materializer.ops.crop import RandomCrop

Install = Callable[[str, str], Path]
ROOT = Path(__file__).parents[2]

MODULE = """
    from viewcache.materializer.ops import FrameOp

    SHIFT = 1

    class Negative(FrameOp):
        name = "negative"

        def apply(self, params, row, frame):
            return 255 - frame

    OPS = [Negative]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that writes a module to an importable folder; custom operations are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, source: str) -> Path:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return tmp_path

    with registry.own_registrations():
        yield install
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_builtins_are_those_of_the_design() -> None:
    """The names of the built-in operations are a public interface; a new one is added here too."""
    assert builtin_names() == (
        "auto_augment", "blur", "center_crop", "color_jitter", "cutmix", "erase", "five_crop", "flip", "grayscale",
        "inv_sample", "mix_video", "mixup", "normalize", "rand_augment", "random_crop", "random_resized_crop",
        "random_short_side", "resize", "rotate", "subsample", "ten_crop", "three_crop", "to_dtype",
        "trivial_augment_wide",
    )  # fmt: skip


def test_builtins_declare_their_fingerprint() -> None:
    """A built-in's fingerprint is declared, so that moving code about does not invalidate caches."""
    assert all(get(name).fingerprint.isdigit() for name in builtin_names())


def test_unknown_names_list_the_known_and_the_nearest() -> None:
    """A misspelt operation gets the list of known ones and the nearest name."""
    with registry.own_registrations():  # other tests have operations of their own
        with pytest.raises(
            BadInput, match=r"unknown op 'random_corp'; known: auto_augment, .*; did you mean random_crop\?"
        ):
            get("random_corp")
        with pytest.raises(
            BadInput, match=r"unknown op 'os.system'; known: .*trivial_augment_wide; .* op_modules names$"
        ):
            get("os.system")


def test_importing_operations_loads_no_heavy_library() -> None:
    """Looking up and parsing every operation imports neither OpenCV nor torch nor the decoder."""
    code = """
        import sys
        from viewcache.materializer.ops import builtin_names, get
        for name in builtin_names():
            get(name)
        heavy = {"cv2", "torch", "av", "zarr", "duckdb", "scipy", "pyarrow"} & set(sys.modules)
        sys.exit(f"loaded {heavy}" if heavy else 0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_a_listed_module_registers_its_operations(installed: Install) -> None:
    """A module named in cache.op_modules adds the operations of its list OPS; loading it again changes nothing."""
    installed("my_ops", MODULE)
    with pytest.raises(BadInput, match="unknown op 'negative'"):
        get("negative")
    assert load_modules(["my_ops"]) == load_modules(["my_ops"]) == ("negative",)
    op = get("negative")
    assert isinstance(op, FrameOp)
    params = op.parse(None)
    rows, h, w = op.resolve(params, draws(2), np.array([4, 5]), np.array([6, 7]))
    assert (rows.shape, h.tolist(), w.tolist()) == ((2, 0), [4, 5], [6, 7])
    assert op.apply(params, rows[0], np.zeros((3, 4, 6), np.uint8)).min() == 255
    assert "negative" in names()
    assert "negative" not in builtin_names()


@pytest.mark.parametrize(
    ("module", "source", "match"),
    [
        ("missing_ops", None, "missing_ops cannot be imported: No module named 'missing_ops'"),
        ("empty_ops", "x = 1", "empty_ops has no list OPS"),
        ("../evil", None, "'../evil'; allowed: the dotted name"),
        ("plain_ops", "OPS = [print]", "a subclass of FrameOp, NativeOp, ClipOp, TimeOp or ReadOp"),
        ("resize_ops", MODULE.replace('"negative"', '"resize"'), "'resize' from resize_ops: the name is taken"),
        ("name_ops", MODULE.replace('"negative"', '"Bad Name"'), r"its name is 'Bad Name'; allowed: \[a-z\]"),
    ],
)
def test_wrong_modules_are_refused(installed: Install, module: str, source: str | None, match: str) -> None:
    """A module that is missing, has no OPS, is no name, or lists what is no operation is refused with the reason."""
    if source is not None:
        installed(module, source)
    with pytest.raises(BadInput, match=match):
        load_modules([module])


def test_two_operations_cannot_have_one_name(installed: Install) -> None:
    """Different code under a name that is taken is refused, because keys would not tell them apart for the user."""
    installed("first_ops", MODULE)
    installed("second_ops", MODULE.replace("255", "254"))
    load_modules(["first_ops"])
    with pytest.raises(BadInput, match="'negative' from second_ops: the name is taken"):
        load_modules(["second_ops"])


def test_one_module_has_one_operation_of_a_name(installed: Install) -> None:
    """Of two in one list the later one would take the place of the other: that is refused, and neither is known."""
    held = 'def __init__(self, by=1):\n            self.by = by\n\n        name = "negative"'
    text = MODULE.replace('name = "negative"', held)
    installed("twice_ops", text.replace("[Negative]", "[Negative(1), Negative(2)]"))
    with pytest.raises(BadInput, match="'negative' from twice_ops: the name is taken"):
        load_modules(["twice_ops"])
    assert "negative" not in names()


def test_what_is_registered_again_takes_its_place(installed: Install) -> None:
    """Class and function of one module and qualified name are the same ones, edited; others are not."""

    def of(module: str, qualified: str, version: str) -> FrameOp:
        space = {"name": "typed", "fingerprint": version, "__module__": module, "__qualname__": qualified}
        made = type("Typed", (FrameOp,), space | {"apply": lambda self, params, row, frame: frame})
        return cast(FrameOp, register(made))

    first = of("__main__", "Typed", "1")
    for version in ("2", "2"):  # of a declared one the code may change, and the fingerprint stay
        again = of("__main__", "Typed", version)
        assert get("typed") is again is not first
    for module, qualified in (("other", "Typed"), ("__main__", "make.<locals>.Typed")):
        with pytest.raises(BadInput, match=r"'typed' from .*: the name is taken"):
            of(module, qualified, "3")
    assert get("typed") is again


def test_an_entry_point_is_found_by_name(installed: Install) -> None:
    """An installed package's entry point of group viewcache.ops is loaded when its name is asked for, and only then."""
    folder = installed("packaged_ops", MODULE)
    installed("unasked_ops", "raise RuntimeError('nobody asked for this')")
    info = folder / "packaged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[viewcache.ops]\nnegative = packaged_ops:Negative\nother = packaged_ops:Negative\nunasked = unasked_ops:X\n"
    )
    assert {"negative", "unasked"} <= set(names())
    assert get("negative").name == "negative"
    with pytest.raises(BadInput, match=r"entry point 'other' .* is an op named 'negative'"):
        get("other")


def test_the_fingerprint_follows_the_source(installed: Install) -> None:
    """Any change in the module of a custom operation changes its fingerprint, so no stale pixels are served."""
    installed("one_ops", MODULE)
    installed("two_ops", MODULE.replace("SHIFT = 1", "SHIFT = 2"))
    installed("same_ops", MODULE)
    one, two, same = (__import__(f"{name}_ops").Negative().fingerprint for name in ("one", "two", "same"))
    assert one == same != two
    assert one.startswith("source-")


def test_custom_code_never_passes_for_what_it_inherits_from(installed: Install) -> None:
    """A custom subclass of a built-in operation has its own fingerprint and effect, so keys never collide."""
    installed(
        "child_ops",
        """
        from viewcache.materializer.ops.crop import RandomCrop

        class Shifted(RandomCrop):
            name = "shifted_crop"

        class Grandchild(Shifted):
            name = "grandchild"
            fingerprint = "1"
        """,
    )
    child_ops = importlib.import_module("child_ops")
    child, grandchild = child_ops.Shifted(), child_ops.Grandchild()
    assert child.fingerprint.startswith("source-")
    assert (child.effect, grandchild.effect) == ("shifted_crop", "grandchild")
    assert child.scope == RandomCrop.scope == "crop"
    assert child.parse(3) == RandomCrop().parse(3)


def test_code_without_source_must_declare_its_fingerprint(installed: Install) -> None:
    """An operation whose source cannot be read is refused unless it declares a fingerprint itself."""
    space: dict[str, object] = {"FrameOp": FrameOp, "__name__": "typed_in"}
    exec(textwrap.dedent(MODULE).replace("from viewcache.materializer.ops import FrameOp", ""), space)
    negative = space["Negative"]
    assert isinstance(negative, type)
    assert issubclass(negative, Op)
    with pytest.raises(BadInput, match="the source of typed_in cannot be read; declare fingerprint"):
        register(negative)
    declared = type("Declared", (negative,), {"name": "declared", "fingerprint": "3", "__module__": "typed_in"})
    assert issubclass(declared, Op)
    assert register(declared).fingerprint == "3"


# Documentation


def section(text: str, heading: str) -> str:
    """What stands under a heading of docs/ops.md."""
    match = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    assert match is not None, f"docs/ops.md has no heading ### {heading}"
    return match[1]


def shown(value: object) -> str:
    """A default as the documentation shows it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def row_of(field: Field) -> str:
    """The line of the parameter table that docs/ops.md must have."""
    default = "none" if field.default is None else shown(field.default)
    if field.default is REQUIRED:
        default = "required"
    return f"| `{field.name}` | {default} | {field.kind.allowed} | {field.doc} |"


@pytest.mark.parametrize("name", builtin_names())
def test_every_operation_is_documented(name: str) -> None:
    """docs/ops.md has a heading per built-in operation, with every parameter's default, range and meaning."""
    text = section((ROOT / "docs/ops.md").read_text(), name)
    op = get(name)
    for field in op.fields:
        assert row_of(field) in text
    assert f"stage: {op.stage}" in text


@pytest.mark.parametrize("name", builtin_names())
def test_the_documented_examples_parse(name: str) -> None:
    """Every operation has an example in docs/ops.md, and all examples are valid."""
    text = section((ROOT / "docs/ops.md").read_text(), name)
    examples = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    calls = [
        call
        for block in examples
        for call in (block if isinstance(block, list) else block["augmentation"][0]["config"])
    ]
    assert name in {op for call in calls for op in call}
    for call in calls:
        for op, value in call.items():
            get(op).parse(value)


def test_the_documentation_has_no_other_operations() -> None:
    """Every heading under the list of operations is a built-in one: nothing is promised that is not there."""
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs/ops.md").read_text(), re.M)
    assert sorted(headings) == list(builtin_names())


def documented(head: str) -> str:
    """The module in docs/custom-ops.md whose docstring begins so."""
    modules: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/custom-ops.md").read_text(), re.S)
    (source,) = (each for each in modules if each.startswith(f'"""{head}'))
    ast.parse(source)
    return source


def test_the_documented_functions_work(installed: Install) -> None:
    """They register, draw by the key, and are the functions that they were."""
    installed("my_ops", documented("Film grain"))
    assert load_modules(["my_ops"]) == ("grain", "fade")
    grain, fade = get("grain"), get("fade")
    assert isinstance(grain, ClipOp)
    assert isinstance(fade, ClipOp)
    params = grain.parse({"strength": 12})
    rows, *_ = grain.resolve(params, draws(2, grain.scope), np.full(2, 4), np.full(2, 5))
    clip = np.full((3, 3, 4, 5), 100, np.uint8)
    one, again, other = (grain.run_clip(params, rows[k], clip.copy()) for k in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert (one.min(), one.max()) == (88, 112)
    assert fade.run_clip((), rows[0, :0], clip).max(axis=(1, 2, 3)).tolist() == [0, 50, 100]


def test_the_documented_class_works(installed: Install) -> None:
    """The example of docs/custom-ops.md is run as it stands: it registers, draws, applies and is shared by keys."""
    installed("solarize_ops", documented("Solarize"))
    (name,) = load_modules(["solarize_ops"])
    assert name == "solarize"
    op = get(name)
    assert isinstance(op, FrameOp)
    params = op.parse({"threshold": [64, 192]})
    n = 2000
    rows, h, w = op.resolve(params, draws(n, op.scope), np.full(n, 4), np.full(n, 5))
    assert rows.dtype == np.int32
    assert (rows.min(), rows.max()) == (64, 192)
    assert (h.tolist(), w.tolist()) == ([4] * n, [5] * n)
    frame = np.arange(60, dtype=np.uint8).reshape(3, 4, 5) * 4
    want = np.where(frame >= rows[0, 0], 255 - frame, frame)
    assert np.array_equal(op.apply(params, rows[0], frame), want)
    with pytest.raises(BadInput, match=r"solarize: threshold is \[0, 999\]; allowed:"):
        op.parse({"threshold": [0, 999]})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("RandomHorizontalFlip", "flip"),
        ("HorizontalFlip", "flip"),
        ("Resize", "resize"),
        ("RandomCrop", "random_crop"),
        ("CenterCrop", "center_crop"),
        ("RandomResizedCrop", "random_resized_crop"),
        ("ColorJitter", "color_jitter"),
        ("ShortSideScale", "resize"),
        ("RandomShortSideScale", "random_short_side"),
        ("Normalize", "normalize"),
        ("GaussianBlur", "blur"),
        ("RandomErasing", "erase"),
        ("Grayscale", "grayscale"),
        ("UniformTemporalSubsample", "subsample"),
        ("RandAugment", "rand_augment"),
        ("AutoAugment", "auto_augment"),
        ("TrivialAugmentWide", "trivial_augment_wide"),
        ("MixUp", "mixup"),
        ("CutMix", "cutmix"),
        ("MixVideo", "mix_video"),
        ("gaussian_blur", "blur"),
        ("rezise", "resize"),
    ],
)
def test_names_of_other_libraries_are_understood(written: str, meant: str) -> None:
    """Who writes what torchvision, Albumentations or PyTorchVideo call an operation is told our name."""
    with pytest.raises(BadInput, match=rf"unknown op '{written}'.*; did you mean {meant}\?$"):
        get(written)


def test_names_of_other_libraries_lead_to_operations() -> None:
    """Every name that is proposed for one of theirs is a built-in operation."""
    assert set(registry.ELSEWHERE.values()) <= set(builtin_names())
    assert all(name == name.lower().replace("_", "") for name in registry.ELSEWHERE)
