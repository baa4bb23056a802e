"""What is kept of a generation: each video's options, the choice under the budget, and the keeper that asks again.

In the order of work: ``options``, ``choice``, ``forecast``, ``keeper``.
"""

__all__: list[str] = []
