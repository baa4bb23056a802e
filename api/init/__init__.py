"""A configuration for a folder of videos or images: what lies there, what fits it, and the YAML with the reasons.

In the order of work:

- ``looking``: the files of a folder in numbers, by the headers of some of them
- ``labels``: where their labels are: a table, or the folders
- ``choices``: the values that fit them
- ``written``: the YAML, with a comment why beside each value
"""

__all__: list[str] = []
