"""How large the planes of a decoded frame are, for the pixel formats that are kept as planes."""

from functools import lru_cache

__all__ = ["frame_bytes", "native_bytes", "plane_shapes"]


def plane_shapes(pix_fmt: str, width: int, height: int) -> tuple[tuple[int, int], ...] | None:
    """Rows and bytes per row of each plane, without padding; None for formats that are not kept as planes.

    Not kept: palettes, bit streams, hardware surfaces, and packed 4:1:1, whose rows have no plain width in bytes.
    """
    from av.video.format import VideoFormat  # the whole of PyAV, which who only lists files does not need

    try:
        layout = VideoFormat(pix_fmt, width, height)
    except ValueError:
        return None
    if (
        layout.has_palette
        or layout.is_bit_stream
        or not layout.components
        or ("411" in pix_fmt and not layout.is_planar)
    ):
        return None
    planes: dict[int, tuple[int, int]] = {}
    if not layout.is_planar:
        # Packed: chroma that is shared by two pixels makes the row a whole number of pairs.
        pair = 2 if any(part.width < width for part in layout.components) else 1
        pixels = -(-width // pair) * pair
        return ((height, -(-pixels * layout.padded_bits_per_pixel // 8)),)
    for part in layout.components:
        rows, used = planes.get(part.plane, (part.height, 0))
        planes[part.plane] = (rows, used + part.width * -(-part.bits // 8))
    return tuple(planes[number] for number in sorted(planes))


def frame_bytes(pix_fmt: str, width: int, height: int) -> int | None:
    """Bytes of all planes of a frame, without padding; None for formats that are not kept as planes."""
    shapes = plane_shapes(pix_fmt, width, height)
    return None if shapes is None else sum(rows * row for rows, row in shapes)


@lru_cache(maxsize=1024)  # headers are read by the thousand, and most tell of the same size
def native_bytes(pix_fmt: str, width: int, height: int) -> int:
    """The same; -1 for formats that are not kept as planes."""
    size = frame_bytes(pix_fmt, width, height)
    return -1 if size is None else size
