"""Whether what was drawn and stored is right: checksums, orders, uniformity, diversity, plots.

In the order of work: ``recorded``, ``uniformity``, ``diversity``, ``evidence``, ``plots``, ``verify``.
"""

__all__: list[str] = []
