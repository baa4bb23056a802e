"""Bytes to pictures: where a video's bytes come from, its packet index, and decoding the frames that are needed.

In the order of work:

- ``reaching``: files that cannot be reached just now
- ``far_files``: the file systems behind URLs, asked what is there now
- ``stamp``: what tells one version of a file from the next
- ``source``: reach a video's bytes, local or remote
- ``kept``: the file of a video that lies far away, out of its copy in the store
- ``whole``: a file that is read whole, once for all that is made of its bytes
- ``bitstream``: what a packet tells without being decoded
- ``media_index``: what planning knows of a source of any kind
- ``planes``: how large the planes of a decoded frame are
- ``index``: the packet index of one video
- ``facts``: what a row says of a video; what was claimed, and what was found
- ``head``: the beginning of a picture file, fetched as far as it is looked at
- ``exif``: how a picture is to be turned
- ``jpeg``: what the segments of a JPEG file say
- ``picture_head``: pictures as videos of one frame: what their headers say, and their index
- ``sketch``: a video whose packets nobody has looked at, as planning sees it
- ``demux``: a demuxer that feeds only the packets that matter
- ``picture_feed``: a picture's one packet, and a decoder for it
- ``boxes``: what MP4 and QuickTime files are made of
- ``sps``: size and format of the pictures of an H.264 stream
- ``moov``: the tables of a common MP4 or QuickTime file
- ``header``: what a file says of itself: by our reader, or else by FFmpeg
- ``probe``: index a video, and which way of decoding gives the true frames
- ``decode``: the needed frames, at the fewest packets
- ``audio``: stretches of an audio track, out of a decode from its beginning
- ``h264``: the doors to FFmpeg's encoder and decoder of H.264
- ``lossless``: pictures packed in groups without loss, and unpacked
- ``loss``: what of its pictures a task may lose
- ``lossy``: groups of pictures encoded with that loss, and decoded
- ``pixels``: the one resize that defines the data; planes and back
"""

__all__: list[str] = []
