"""What is kept of a generation: each video's options, the choice under the budget, and the keeper that asks again.

In the order of work:

- ``sources``: the videos as those who weigh see them
- ``horizon``: the epochs behind a generation, and the frames that their clips can have
- ``ways``: the ways to keep a video's clips
- ``density``: how well the pictures of one video pack, beside all others
- ``average``: what a generation costs of each video, over the last ones
- ``needs``: what the clips of videos need: counts and frames, by epoch use
- ``columns``: what the ways take, for a block of videos
- ``options``: what each way of keeping a video takes and costs
- ``spread``: equal items in no order of need, evenly over batches
- ``choice``: choosing among them under the budget; the rival rules
- ``balance``: the same where a disk is as scarce as cores; the rules by name
- ``fixed_share``: a stated share of the videos is kept
- ``settled``: what was chosen for each video, and that it stays where that costs little
- ``kept_ways``: what is kept of each video, without what it was chosen by
- ``forecast``: what making ahead will take
- ``chosen``: what is kept of a generation, as a value
- ``intermediates``: recipes and rows of the intermediates that are kept
- ``lasting``: intermediates of all frames that clips can have, of use in later generations too
- ``packs``: which kept pictures of images lie together
- ``lying``: what lasts and lies in the store
- ``decided``: what was decided for one generation, and what became of it
- ``told``: what the catalog was told of it
- ``clip_sources``: where workers find the videos that something is kept of
- ``chosen_images``: what a choice keeps of images, all that are alike at once
- ``kept_objects``: the objects that a choice keeps of each video
- ``near``: the encoded files of videos that lie far away, beside each way
- ``near_files``: which of them are kept
- ``keeper``: what is kept of a generation, decided again when that changes
"""

__all__: list[str] = []
