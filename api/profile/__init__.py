"""`viewcache profile`: what the devices and cores of this machine give, and which share of images to keep for them.

In the order of work:

- ``scratch``: a store to measure in, owned for that long, and a folder in it that leaves nothing
- ``profile``: measure a task, and record what devices give
- ``told``: a profile as tables and words
"""

__all__: list[str] = []
