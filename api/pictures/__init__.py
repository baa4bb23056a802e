"""What a batch or a video looks like: contact sheets and moving pictures, with what was decided for each clip.

In the order of work:

- ``words``: what was done to a clip, in words
- ``windows``: which part of the source frame a clip shows
- ``canvas``: frames and words on one picture
- ``waveform``: what is heard of a clip, as a strip
- ``encode``: pictures as the bytes of PNG, GIF, WebP and MP4 files
- ``picture``: what ``cache.show`` gives: shown by a notebook, saved to a file
- ``batch``: a batch as a picture
- ``video``: a video as a picture, with the windows of its clips
- ``show``: one of both, as it was asked for
"""

__all__: list[str] = []
