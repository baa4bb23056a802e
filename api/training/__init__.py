"""Batches for training: the loader, and orders for several jobs over any indexed dataset.

In the order of work:

- ``hand_over``: batches from the reading thread to the loop, whenever Ctrl-C comes
- ``loader``: batches for training: ranks, resume, layouts
- ``sampling``: orders for several jobs over any indexed dataset: `viewcache.sampling`
- ``torch_sampler``: the same as a torch `Sampler`
"""

__all__: list[str] = []
