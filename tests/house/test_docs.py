"""Documents say what the code does: they are compared with it."""

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.house.tree import ROOT, room_files, short

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
PARTS = ("how it is|today", "(the )?problem", "(the )?decision|rules", "alternatives", "how it is tested|tests")
MAP = (ROOT / "ARCHITECTURE.md").read_text()


def _blocks(language: str) -> Sequence[object]:
    """Fenced blocks of a language; ```` ```python no-run ```` marks a part that cannot stand alone."""
    found = []
    for path in DOCUMENTS:
        for match in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            if match[1] == language and "no-run" not in match[2]:
                line = path.read_text()[: match.start()].count("\n") + 1
                found.append(pytest.param(match[3], id=f"{short(path)}:{line}"))
    return found


def _named_files() -> set[str]:
    return {name for name in re.findall(r"`([\w./-]+)`", MAP) if "/" in name}


@pytest.mark.parametrize("name", sorted(_named_files()))
def test_the_map_names_what_exists(name: str) -> None:
    """ARCHITECTURE.md never leads to a file that is not there."""
    assert (ROOT / name).exists()


FOLDERS = sorted({path.parent for path in room_files() if (path.parent / "__init__.py").exists()})


@pytest.mark.parametrize("folder", [each for each in FOLDERS if short(each) not in ("api", "materializer")], ids=short)
def test_the_map_names_every_folder(folder: Path) -> None:
    """A new folder is on the map, or nobody finds it."""
    assert f"`{short(folder)}/`" in MAP


@pytest.mark.parametrize("folder", [each for each in FOLDERS if short(each) not in ("api", "migrations")], ids=short)
def test_a_folder_lists_its_files(folder: Path) -> None:
    """The docstring of a folder's `__init__.py` has a line for each of its files, and for no other."""
    listed = re.findall(
        r"^- ``(\w+)``: \S", ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "", re.M
    )
    assert sorted(listed) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def test_the_map_leads_from_papers_to_files() -> None:
    """Each of SAND's mechanisms and JOADER's order have their line."""
    table = MAP[MAP.index("## From the papers") :]
    for section in ("SAND Table 1", "SAND §5.1", "SAND §5.2", "SAND §5.4", "SAND §5.5", "JOADER"):
        assert section in table


@pytest.mark.parametrize("text", _blocks("python"))
def test_python_examples_compile(text: str) -> None:
    """An example can be pasted into a file, without a syntax error or an unknown public name."""
    import viewcache

    tree = ast.parse(text)
    compile(tree, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "viewcache"
    }
    assert used <= {*viewcache.__all__, "errors"}


@pytest.mark.parametrize("text", _blocks("yaml"))
def test_yaml_examples_load(text: str) -> None:
    """A configuration shown in a document is one that viewcache takes; a part of one is at least YAML."""
    from viewcache.api.config.load import load

    if re.search(r"^dataset:", text, re.MULTILINE):
        assert load(text).tasks
    else:
        yaml.safe_load(text)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=short)
def test_example_files_load(path: Path) -> None:
    """Each file of examples/ is a complete configuration."""
    from viewcache.api.config.load import load

    assert load(path).tasks


def _links() -> Iterator[object]:
    for path in DOCUMENTS:
        prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in sorted(set(re.findall(r"\]\(([^)\s]+)\)", prose))):
            if not re.match(r"[a-z]+:", target):
                yield pytest.param(path, target, id=f"{short(path)}→{target}")


@pytest.mark.parametrize(("path", "target"), list(_links()))
def test_links_lead_somewhere(path: Path, target: str) -> None:
    """A relative link names a file that exists and, after #, one of its headings."""
    name, _, anchor = target.partition("#")
    linked = (path.parent / name) if name else path
    assert linked.exists()
    if anchor:
        heads = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_policy_has_its_heading() -> None:
    """docs/policies.md tells of each shipped eviction policy, and of each column that a policy may go by."""
    from viewcache.catalog.eviction import CANDIDATES
    from viewcache.catalog.statements import policy_names

    text = (ROOT / "docs" / "policies.md").read_text()
    assert set(re.findall(r"^### `(\w+)`$", text, re.MULTILINE)) == set(policy_names())
    columns = text[text.index("| column of `candidates`") :]
    assert re.findall(r"^\| `(\w+)` \| ", columns, re.MULTILINE) == CANDIDATES.names


def test_design_notes_are_numbered() -> None:
    """No two notes share a number, and each has the five parts."""
    notes = sorted((ROOT / "docs" / "design").glob("*.md"))
    assert len({int(note.name[:4]) for note in notes}) == len(notes) > 0
    for note in notes:
        text = note.read_text()
        heads = [head.lower() for head in re.findall(r"^## (.*)$", text, re.MULTILINE)]
        for part in PARTS:
            assert any(re.match(part, head) for head in heads), f"{short(note)} has no part '{part}'"


def test_make_targets_are_documented() -> None:
    """`make help` and CONTRIBUTING.md know every target."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    assert targets == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    known = set(re.findall(r"^make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert targets - {"help"} <= known


def test_extras_are_documented() -> None:
    """Each optional part that can be installed is spoken of in the README or in docs/errors.md."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "errors.md").read_text()
    names = {
        "torch": "torch",
        "demo": "make demo",
        "pg": "PostgreSQL",
        "s3": "S3",
        "gcs": "Google Cloud Storage",
        "azure": "Azure",
        "fast": "fastcrc",
        "zarr": "zarr.open",
        "http": "web server",
        "verify": "matplotlib",
        "metrics": "Prometheus",
        "mount": "viewcache mount",
        "ray": "Ray Tune",
        "lightning": "Lightning",
        "jax": "JAX arrays",
    }
    assert set(extras) == set(names)
    assert not [extra for extra, word in names.items() if word not in text]


def test_glossary_has_the_words() -> None:
    """Every word of the catalog's relations and of the config is explained once."""
    defined = re.findall(r"^\*\*([\w ]+)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = (
        "dataset video task group epoch iteration generation sample clip view object use draw deadline reference lease "
        "tier policy budget frame stride GOP shard chunk codec edge copy demand step op"
    )
    assert not set(words.split()) - set(defined)
    assert len(defined) == len(set(defined))


WIDTH = 120
"""Columns of prose. Tables, code, what is generated, and what has no space to break at may be wider."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=short)
def test_prose_wraps(path: Path) -> None:
    """Prose of documents wraps at 120 columns, as code does."""
    text = re.sub(r"<!-- generated: .*?<!-- generated: end -->", "", path.read_text(), flags=re.S)
    text = re.sub(r"^\s*```.*?^\s*```$", "", text, flags=re.S | re.M)
    assert not [
        line
        for line in text.splitlines()
        if len(line) > WIDTH and not re.match(r"\s*\||    ", line) and " " in line[40:]
    ]
