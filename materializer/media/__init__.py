"""Bytes to pictures: where a video's bytes come from, its packet index, and decoding the frames that are needed.

In the order of work: ``source``, ``bitstream``, ``index``, ``demux``, ``probe``, ``decode``, ``pixels``.
"""

__all__: list[str] = []
