"""What would happen: the plan, other budgets, and every problem of a configuration.

In the order of work: ``plan``, ``what_if``, ``lint``.
"""

__all__: list[str] = []
