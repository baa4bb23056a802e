"""Configurations that the tests start from."""

from typing import Any

import pytest

from viewcache.api.config.load import load
from viewcache.errors import ConfigError

FIGURE_9 = """\
# dataset configuration in YAML format
dataset:
  tag: "train"
  # identify the input source
  input_source: file # or streaming
  video_dataset_path: /dataset/train
  # options for decoding and selection
  sampling:
    videos_per_batch: 8
    frames_per_video: 8
    frame_stride: 4
    samples_per_video: 2
  # defining augmentation steps
  augmentation:
  - name: "augment_resize"
    branch_type: "single"
    inputs: ["frame"]
    outputs: ["augmented_frame_0"]
    config:
    - resize:
        shape: [256, 320]
        interpolation: ["bilinear"]
  - name: "conditional branch"
    branch_type: "conditional"
    inputs: ["augmented_frame_0"]
    outputs: ["augmented_frame_1"]
    branches:
    - condition: "iteration > 10000"
      config:
      - inv_sample:
          true
    - condition: "else"
      config:
        None
  - name: "random_branch"
    branch_type: "random"
    inputs: ["augmented_frame_1"]
    outputs: ["augmented_frame_2"]
    branches:
    - prob: 0.5
      config:
      - flip:
          flip_prob: 0.5
    - prob: 0.5
      config:
        None
"""
"""The example of SAND's Fig. 9, with the misprint of `condition` corrected."""


def task(**changes: Any) -> dict[str, Any]:
    """A mapping of one small valid task, with some keys of ``dataset`` changed or added."""
    sampling = {"videos_per_batch": 2, "frames_per_video": 4}
    return {"tag": "train", "video_dataset_path": "/videos", "sampling": sampling} | changes


def single(inputs: str | list[str], outputs: str | list[str], *config: Any) -> dict[str, Any]:
    """A step of type single."""
    return {"branch_type": "single", "inputs": inputs, "outputs": outputs, "config": list(config)}


def refused(source: Any) -> ConfigError:
    """The error of a configuration that must be refused."""
    with pytest.raises(ConfigError) as caught:
        load(source)
    return caught.value
