"""Batches for training: the loader, and orders for several jobs over any indexed dataset.

In the order of work: ``loader``, ``sampling``, ``torch_sampler``.
"""

__all__: list[str] = []
