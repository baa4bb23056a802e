"""Who is next: demand, deadlines, running jobs, preemption, and what leaves to make room.

In the order of work:

- ``work``: rows to be made, as the rules see them, and the states of objects
- ``seats``: who reads a task, and how far each reader is
- ``keeping``: what is kept of a generation, as who makes it needs to know
- ``reader``: where one reader is in a generation
- ``schedule``: where the clips of a generation stand, where its readers are, how far each clip is
- ``rows_by_key``: the rows that need an object, found by its content key
- ``intermediate_work``: intermediates that clips are made from, as work
- ``generation``: a generation in work: a schedule with its plan
- ``ahead``: what is made ahead of a generation, told before it is made
- ``rules``: who is next, what a job makes, who is interrupted and what may leave, as pure functions
- ``driver``: the loop that gives jobs to workers by the rules, for the dispatcher and the simulation
- ``demand``: who waits for what: demands and look-ahead
- ``running``: jobs that workers have, and what a job makes for whom
- ``deaths``: on which job workers die, and which image of a block is to blame
- ``bad_rows``: rows whose video cannot give them, until their task has decided
- ``pressure``: what workers hold in memory, and when that is too much
- ``chooser``: the rules with the memory and the patience of one dispatcher
- ``candidates``: what would leave next, asked for ahead where asking takes long
- ``evictor``: evicts copies to make room, and tells who still needs them
- ``passing_rules``: which clips pass through memory instead of being stored, as pure functions
- ``passing``: places in memory for those, and back again
- ``moves``: what is on its way between tiers, for the dispatcher and the mover
- ``trim``: what nothing wants any more leaves before room is short
- ``residents``: what stays in memory through a generation, chosen by keys
- ``migration``: objects move up before they are due, and down when a tier fills
- ``dispatcher``: demand first, then what is due; what leaves
"""

__all__: list[str] = []
