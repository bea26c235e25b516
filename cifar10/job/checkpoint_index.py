"""What the index of a checkpoint says, before TensorFlow reads it.

TensorFlow believes what has a right checksum, and a shape below zero ends the process. The index is
a table as LevelDB writes it: blocks of names and protocol buffers, a block that says where those
are, and at the end where that is. What is accepted here is what TensorFlow writes, no more.
"""

import math
import struct
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from cifar10.core import files

_END = bytes.fromhex('57fb808b247547db')
_MOST_DIMENSIONS = 32  # Of numpy's arrays.
_MOST_NUMBERS = 1 << 60


def read(path: str, num_files: int) -> dict[str, Any]:
  """Each tensor's type, shape and place (a BundleEntryProto), by name.

  Args:
    path: of the index.
    num_files: which hold the tensors.

  Raises:
    Exception: of many kinds, where TensorFlow might not survive it.
  """
  content = files.read(path)
  (_, _, *place), _ = _numbers(content[-48:], 0, 4)
  blocks = [_numbers(handle, 0, 2)[0] for _, handle in _entries(content, *place)]
  found = [entry for block in blocks for entry in _entries(content, *block)]
  values = dict(found)
  header = tensor_bundle_pb2.BundleHeaderProto.FromString(values.pop(b''))
  is_one = header.num_shards == num_files and not header.endianness and content.endswith(_END)
  _require(is_one and [name for name, _ in found] == [b'', *sorted(values)])
  _require(all(name[0] and len(name) <= 1000 for name in values))  # 0: of a part of a tensor.
  return {name.decode(): _entry(value, num_files) for name, value in values.items()}


def _require(holds: bool) -> None:
  if not holds:
    raise ValueError('it is no index of a checkpoint')


def _entries(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
  """The names and values in a block; a name repeats the beginning of the one before."""
  block = content[start : start + size]
  _require(len(block) == size and content[start + size] == 0)  # 0: it is not compressed.
  restarts = struct.unpack_from('<I', block, size - 4)[0]
  end = size - 4 - 4 * restarts
  name, place, places = b'', 0, {0}
  while place < end:
    places.add(place)
    (shared, new, length), place = _numbers(block, place, 3)
    name = name[:shared] + block[place : place + new]
    place += new + length
    yield name, block[place - length : place]
  _require(place == end and places.issuperset(struct.unpack_from(f'<{restarts}I', block, end)))


def _numbers(content: bytes, place: int, count: int) -> tuple[list[int], int]:
  """So many numbers, seven bits a byte, the lowest first -> them and where the next one begins."""
  numbers = []
  for _ in range(count):
    number = shift = 0
    while content[place] > 127:
      number |= (content[place] & 127) << shift
      place, shift = place + 1, shift + 7
    numbers.append(number | content[place] << shift)
    place += 1
  return numbers, place


def _entry(value: bytes, num_files: int) -> Any:
  entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
  sizes = [dimension.size for dimension in entry.shape.dim]
  dtype = tf.as_dtype(entry.dtype)
  is_number = dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex
  _require(
    entry.SerializeToString() == value
    and not (entry.slices or entry.shape.unknown_rank)
    and entry.dtype < 100  # From there on: a reference.
    and len(sizes) <= _MOST_DIMENSIONS
    and math.prod(max(size, 1) for size in sizes) < _MOST_NUMBERS
    and min(0, *sizes, entry.offset, entry.size) == 0 <= entry.shard_id < num_files
    and (entry.size == math.prod(sizes) * dtype.size if is_number else dtype == tf.string)
  )
  return entry
