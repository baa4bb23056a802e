"""Whether what was drawn and stored is right: checksums, orders, uniformity, diversity, plots.

In the order of work:

- ``recorded``: draws as recorded: orders, starts, crops; what of them is independent
- ``segment_starts``: where clips of segments start within them
- ``uniformity``: tests of orders and densities, as pure functions
- ``diversity``: distinct frames, and frames that come again, beside independent draws
- ``evidence``: both for all tasks of a cache
- ``plots``: the same as PNG or HTML
- ``quality``: what pictures with a loss have reached
- ``verify``: every byte of every object, each drawn epoch, and the randomness of draws
"""

__all__: list[str] = []
