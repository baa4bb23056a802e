"""The benchmark of audio runs whole, on two small clips."""

import json
from pathlib import Path

from benchmarks import audio
from benchmarks.harness import main
from tests.sounds import Track, encode_with_audio


def test_both_parts_are_answered(tmp_path: Path) -> None:
    """Stretches beside whole decodes of each clip, and what audio adds to a run."""
    videos = [encode_with_audio(tmp_path / f"v{number}.mp4", [Track(seconds=5)], frames=120) for number in range(2)]
    out = tmp_path / "out.json"
    asked = ["--videos", *map(str, videos), "--repeats", "1", "--dir", str(tmp_path), "--json", str(out)]
    main(audio.__doc__, audio.bench, audio.arguments, asked)
    first, second, share, decodes = json.loads(out.read_text())["results"]
    for each in (first, second):
        decoded, resampled, stretches = (timing["note"] for timing in each["timings"])
        assert decoded >= 240_000, "encoders fill up the last frame"
        assert (round(decoded / resampled, 2), stretches) == (3, 10)
    assert [share["kind"], decodes["kind"]] == ["figure", "figure"]
