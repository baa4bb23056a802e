"""The same rules under a simulated clock: what reading under other budgets would be like.

In the order of work:

- ``simulated_uses``: planned reading as numbers, for simulations
- ``simulated_keeping``: what would be kept, in a simulation
- ``simulated_store``: a budget in a simulation, and what leaves it
- ``simulated_passing``: clips that pass through memory, in a simulation
- ``simulated_dispatcher``: the dispatcher and its workers in a simulation
- ``simulate``: reading under a budget, simulated: readers and what they wait for
"""

__all__: list[str] = []
