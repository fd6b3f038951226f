"""The first samples of an idx file, as an idx file of its own."""

import gzip
import struct
from pathlib import Path

UNSIGNED_BYTE = 0x08


def read(path: Path) -> bytes:
    """The content of `path`, or of the file with .gz behind its name."""
    if path.is_file():
        return path.read_bytes()
    with gzip.open(f"{path}.gz") as file:
        return file.read()


def first_samples(content: bytes, count: int) -> bytes:
    """ValueError: `content` is no idx file of bytes, is cut off, or has fewer than `count` samples."""
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTE]) or content[3] == 0:
        raise ValueError(f"begins with {content[:4].hex(' ')}, expected 00 00 08 and the number of dimensions")
    header_size = 4 + 4 * content[3]
    if len(content) < header_size:
        raise ValueError(f"has {len(content)} bytes, expected a header of {header_size}")
    samples, *shape = struct.unpack(f">{content[3]}I", content[4:header_size])
    sample_size = 1
    for extent in shape:
        sample_size *= extent
    if len(content) != header_size + samples * sample_size:
        raise ValueError(f"has {len(content)} bytes, expected {header_size} and {samples} samples of {sample_size}")
    if samples < count:
        raise ValueError(f"has {samples} samples, expected {count} or more")
    header = content[:4] + struct.pack(f">{content[3]}I", count, *shape)
    return header + content[header_size:header_size + count * sample_size]


def write_gzip(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))
