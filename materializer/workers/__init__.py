"""Who makes it: the job that a worker gets, what it does, and the pools of processes or threads.

In the order of work:

- ``job``: what a worker is asked and what it answers
- ``near``: the file of a job, out of its copy if there is one; making that
- ``memory``: the memory tier, from which a worker reads what stays there
- ``encoding``: pictures packed in groups while they are decoded, and checked
- ``lossy``: the loss that tasks allow, a group of frames at a time
- ``intermediates``: a worker's view of intermediates
- ``audio``: the audio of a job's clips, one pass over each track
- ``remote_steps``: what op workers do of a job, several frames to a call
- ``looking``: what a job learns of its video before it decodes
- ``frame``: one frame and what has been made of it
- ``sampling``: the codec of an object, by a sample of it
- ``make``: decode once, give every frame to all that need it
- ``page_cache``: how much of a file the page cache has
- ``ahead``: the device reads what a job will need while the worker decodes
- ``image``: pictures of one image without a job of its own
- ``blocks``: what is wanted of several images: pictures to be kept, and blocks
- ``post``: a socket with messages on it
- ``worker``: the body of a worker, process or thread
- ``pool``: workers as the dispatcher sees them; worker processes, watched and replaced
- ``thread_pool``: workers that are threads of this process
- ``start``: processes or threads, as the settings say
"""

__all__: list[str] = []
