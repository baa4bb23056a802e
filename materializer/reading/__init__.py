"""Batches and frames out: wait for clips, gather them into one buffer, rebuild what is damaged.

In the order of work: ``batch``, ``reader``, ``frames``.
"""

__all__: list[str] = []
