"""``view://`` for fsspec: paths, what they lead to, and their bytes.

In the order of work: ``paths``, ``payload``, ``zarr_group``, ``tree``, ``filesystem``.
"""

__all__: list[str] = []
