"""What a machine's devices and cores give to a task of images, and the mix of forms that suits them (Liquid §4.1).

In the order of work:

- ``cold``: reading files as if nobody had read them
- ``sample``: some images of a task, with what workers need to make their pictures
- ``work``: what that takes, as measured work
- ``pipeline``: the work of training on them, for a while
- ``rates``: what mixes should give
- ``mixes``: the search for the best mix, with few measurements
- ``by_price``: what choosing image by image should give
- ``measure``: all of it together
"""

__all__: list[str] = []
