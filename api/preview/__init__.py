"""What would happen: the plan, other budgets, and every problem of a configuration.

In the order of work:

- ``keeps``: what would be kept of a generation, and what an epoch costs by and by
- ``plan``: what would be made, on a catalog that is thrown away
- ``what_if``: what reading would be like under other budgets
- ``lint``: every problem of a configuration
"""

__all__: list[str] = []
