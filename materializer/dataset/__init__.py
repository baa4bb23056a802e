"""Which videos a task has: files, names, labels, the predicate, and the scan that indexes what is new.

In the order of work:

- ``numbers``: numbers of a dataset's files, where what many files share is held once
- ``texts``: columns of a dataset's files without an object for each file: texts, keys, where values stand
- ``listed``: the files that a listing found, as columns
- ``links``: which symbolic links are followed
- ``roots``: how several places of a dataset are told apart, and list files
- ``folders``: the folders of a local dataset, each of which must be seen
- ``discover``: the files of a folder, glob, URL, list file or several of these
- ``names``: a video's name from its path, and back
- ``table``: a label table as columns: CSV, Parquet or JSON lines
- ``labels``: labels, segments and further columns, matched to the videos
- ``split``: which part of a split dataset each item is in
- ``predicate``: the SQL predicate, in a process with limits
- ``scan``: look into files: their headers, or every packet
- ``scan_request``: what a process is asked that does it
- ``scan_worker``: that process
- ``videos``: the videos that a plan is of, as arrays
- ``versions``: how the old and the new content of a file are called that was replaced
- ``stand_ins``: which video stands in for one that is bad or gone
- ``headers``: read the headers of new files while others train already
- ``clock``: when frames are shown, and which one is nearest to a time
- ``changes``: what happened to files since a dataset was listed last, as values
- ``file_facts``: what headers tell of files, in such columns
- ``files``: a dataset's files in memory, for all tasks that draw from them
- ``video_file``: one of them, as a record
- ``recording``: what was found of files, as rows of the catalog; their content keys
- ``arrivals``: which files of a dataset that grows are complete
- ``known``: what the catalog has of a dataset's files
- ``replaced``: files with other content than when they were drawn: refused, told of, or made versions
- ``listing_spec``: what of a task decides which files are listed, and how they are looked into
- ``listing``: list a dataset, look into what is new, record both; what came and went
- ``growing``: list a dataset that grows again, for each generation that is about to be drawn
- ``classes``: the numbers of labels, one or several of an item
- ``segments``: items, whole videos and segments of them: which frames each has
- ``said``: which items a label table makes of the files, and what it says of each
- ``past``: what a task has drawn by that is not so any more: rows of the label table, headers that lied
- ``fields``: further columns that come with the clips of a batch
- ``columns``: what a label table says, as rows of the catalog
- ``weights``: how often each video comes in an epoch
- ``rules``: what the keys of a dataset make of its label table: classes, parts, weights
- ``checked``: what opening would refuse of a label table, told without a catalog
- ``annotations``: all that is said of a dataset's videos beside their pixels
- ``fit``: which videos fit a task in size, rate and length
- ``dataset``: a task's items: what may be drawn, and what stands in for bad ones
- ``far``: whether the bytes of a video lie far away
"""

__all__: list[str] = []
