"""Batches for training: the loader, and orders for several jobs over any indexed dataset.

In the order of work:

- ``hand_over``: batches from the reading thread to the loop, whenever Ctrl-C comes
- ``places``: where a loader is, and which batches a pass reads
- ``passes``: which epoch a pass of a DataLoader's workers reads
- ``even``: fills up what a rank reads, so that all batches have one shape
- ``mixing``: what a batch is mixed with, which may be another rank's, and the labels of both
- ``frameworks``: batches of PyTorch's tensors, NumPy's arrays or JAX's
- ``handed_out``: what a loader hands out of a batch that was read
- ``options``: options that people know from other loaders
- ``loader``: batches for training: one pass is one epoch; ranks, resume, layouts
- ``sampling``: orders for several jobs over any indexed dataset: `viewcache.sampling`
- ``torch_sampler``: the same as a torch `Sampler`
"""

__all__: list[str] = []
