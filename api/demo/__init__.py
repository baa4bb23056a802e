"""``viewcache demo``: cold, warm and on demand, compared.

In the order of work:

- ``demo_clips``: clips for it
- ``on_demand``: the rival: a plain PyAV loop
- ``stills``: frames of the clips as a dataset of images
- ``demo``: cold, warm and on demand, compared
"""

__all__: list[str] = []
