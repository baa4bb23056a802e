"""``view://`` for fsspec: paths, what they lead to, and their bytes.

In the order of work:

- ``paths``: the text of a `view://` path to a value and back
- ``payload``: a path's bytes: `.npy`, source files, Zarr chunks
- ``zarr_group``: a batch as a Zarr v3 group
- ``about``: what is told of videos and batches, as plain values
- ``tree``: what a path leads to: listing, `info()`, globs
- ``filesystem``: `view://` for fsspec
"""

__all__: list[str] = []
