"""The same rules under a simulated clock: what reading under other budgets would be like.

In the order of work:

- ``simulated_uses``: planned reading as numbers, for simulations
- ``simulated_engine``: the dispatcher and its workers in a simulation
- ``simulated_room``: a budget in a simulation, and what leaves it
- ``simulate``: reading under a budget, simulated: readers and what they wait for
- ``rehearse``: what would be kept, in a simulation
"""

__all__: list[str] = []
