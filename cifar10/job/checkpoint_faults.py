"""Says whether a checkpoint is whole, and reads its index before TensorFlow does.

TensorFlow believes what has a right checksum, and a shape below zero ends the process. The index is
a table as LevelDB writes it: blocks of names and protocol buffers, a block that says where those
are, and at the end where that is. What is accepted here is what TensorFlow writes, no more.
"""

import contextlib
import errno
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from cifar10.core import files, storage_faults
from cifar10.core.errors import InputError

NO_STEP = 'it is no training: it has no global_step'  # The one fault that others need not mind.
_PASSING = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
_END = bytes.fromhex('57fb808b247547db')
MOST_DIMENSIONS = 32  # Of numpy's arrays.
_MOST_NUMBERS = 1 << 60
_LONGEST_NAME = 1000


def fault(checkpoint: str, sizes: Mapping[str, int]) -> str:
  """Returns what is wrong with a checkpoint whose files have these sizes; '' if it is whole.

  Raises:
    InputError: it may not be read.
    OSError, tf.errors.OpError: it cannot be read now, which says nothing of its content.
  """
  name = os.path.basename(checkpoint)
  if f'{name}.index' not in sizes:
    return f'{name}.index is missing'
  parts = [file for file in sizes if not file.endswith(('.index', '.meta'))]
  if not parts:
    return f'{name}.data-... is missing'
  total = int(parts[0][-5:])
  wanted = [f'{name}.data-{part:05}-of-{total:05}' for part in range(total)]
  missing = [file for file in wanted if file not in sizes]
  if missing:
    return f'{missing[0]} is missing'
  of_files = [sizes[file] for file in wanted]
  with contextlib.suppress(OSError, tf.errors.OpError):
    if not _fault_inside(checkpoint, of_files):
      return ''
  # What fails once may be the storage's: it is not moved away for that.
  return _fault_inside(checkpoint, of_files)


def _fault_inside(checkpoint: str, sizes: Sequence[int]) -> str:
  """The fault of the content of files that have these sizes, beside the index."""
  name = os.path.basename(checkpoint)
  try:
    entries = _read(f'{checkpoint}.index', len(sizes))
    reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  except Exception as error:  # Of TensorFlow, and of Python: each fault of the bytes has its own.
    _check_allowed(error, f'{checkpoint}.index')
    return f'{name}.index is damaged'
  try:
    for tensor, entry in entries.items():
      if entry.offset + entry.size > sizes[entry.shard_id]:
        raise ValueError('the file ends before it')
      if entry.dtype != tf.string.as_datatype_enum:  # Of which the network has none.
        reader.get_tensor(tensor)
  except Exception as error:  # As above.
    _check_allowed(error, f'{checkpoint}.data-...')
    return f'{name}.data-{"00000-of-00001" if len(sizes) == 1 else "..."} is damaged'
  step = entries.get('global_step')
  if not step:
    return NO_STEP
  is_step = step.dtype == tf.int64.as_datatype_enum and not step.shape.dim
  is_step = is_step and reader.get_tensor('global_step') >= 0
  return '' if is_step else 'its global_step is no number of steps'


def _check_allowed(error: Exception, path: str) -> None:
  """Raises an error if the file cannot be read: it may be whole, and must not be set aside."""
  number = storage_faults.number(error)
  if number in (errno.EACCES, errno.EPERM):
    raise InputError(f'{path} cannot be read (Permission denied); allow it') from None
  # Behind a URL EIO stands for all errors that have no number of their own.
  is_urls = files.is_url(path) and isinstance(error, OSError) and error.errno == errno.EIO
  if number in files.PASSING or is_urls or isinstance(error, _PASSING):
    raise error


def _read(path: str, num_files: int) -> dict[str, Any]:
  """Each tensor's type, shape and place (a BundleEntryProto) in `num_files` files, by name.

  Raises:
    Exception: of many kinds, where TensorFlow might not survive the index.
  """
  content = files.read(path)
  (_, _, *place), _ = _numbers(content[-48:], 0, 4)
  blocks = [_numbers(handle, 0, 2)[0] for _, handle in _entries(content, *place)]
  _require(sum(size for _, size in blocks) < len(content))  # They do not overlap.
  entries = [entry for block in blocks for entry in _entries(content, *block)]
  values = dict(entries)
  header = tensor_bundle_pb2.BundleHeaderProto.FromString(values.pop(b''))
  is_one = header.num_shards == num_files and not header.endianness and content.endswith(_END)
  _require(is_one and [name for name, _ in entries] == [b'', *sorted(values)])
  _require(all(name[0] for name in values))  # 0: of a part of a tensor.
  return {name.decode(): _entry(value, num_files) for name, value in values.items()}


def _require(holds: bool) -> None:
  if not holds:
    raise ValueError('it is no index of a checkpoint')


def _entries(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
  """The names and values in a block; a name repeats the beginning of the one before."""
  block = content[start : start + size]
  _require(len(block) == size and content[start + size] == 0)  # 0: it is not compressed.
  count = struct.unpack_from('<I', block, size - 4)[0]
  end = size - 4 - 4 * count
  restarts = struct.unpack_from(f'<{count}I', block, end) if end >= 0 else ()
  _require(list(restarts) == sorted({0, *restarts}))
  name, place, places = b'', 0, {0}
  while place < end:
    places.add(place)
    (shared, new, length), place = _numbers(block, place, 3)
    _require(shared + new <= _LONGEST_NAME)
    name = name[:shared] + block[place : place + new]
    place += new + length
    yield name, block[place - length : place]
  _require(place == end and places.issuperset(restarts))


def _numbers(content: bytes, place: int, count: int) -> tuple[list[int], int]:
  """So many numbers, seven bits a byte, the lowest first -> them and where the next one begins."""
  numbers = []
  for _ in range(count):
    number = shift = 0
    while content[place] > 127:
      _require(shift < 63)
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
    and len(sizes) <= MOST_DIMENSIONS
    and math.prod(max(size, 1) for size in sizes) < _MOST_NUMBERS
    and min(0, *sizes, entry.offset, entry.size) == 0 <= entry.shard_id < num_files
    and (entry.size == math.prod(sizes) * dtype.size if is_number else dtype == tf.string)
  )
  return entry
