"""Checks record files without a trusted manifest, or of another form, record by record.

TensorFlow's reader, which also compares checksums, takes half a second for 50,000 records.
"""

from collections.abc import Iterator, Sequence

import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import DamagedError
from cifar10.data import manifest
from cifar10.data.info import IMAGE_BYTES

_MOST_SHOWN = 3  # Features to name of a record that lacks the right ones.

# A TFRecord is: length (uint64), CRC of the length (4 bytes), data, CRC of the data (4 bytes).
HEADER_BYTES = 12
FOOTER_BYTES = 4


def frames(path: str) -> Iterator[tuple[int, int]]:
  """Yields the start and length of each record; raises DamagedError for a truncated record."""
  size, position, count = files.size(path), 0, 0
  with files.opened(path) as file:
    while position < size:
      count += 1
      file.seek(position)
      header = file.read(HEADER_BYTES)
      length = int.from_bytes(header[:8], 'little') if len(header) == HEADER_BYTES else size
      start = position + HEADER_BYTES
      position = start + length + FOOTER_BYTES
      if position > size:
        raise record_error(path, count, 'the file ends inside it')
      yield start, length


def record_error(path: str, number: int, fault: str) -> DamagedError:
  """Returns the error for a faulty record of a file; the first record is number 1."""
  return DamagedError(
    f'{path}: record {number} (counted from 1): {fault}; {manifest.remedy(path, force=True)}'
  )


def count(path: str, num_classes: int) -> int:
  """Returns how many records a file has; raises DamagedError at the first wrong one."""
  number = 0
  # Frames come first: a length beyond the end of the file must not reach TensorFlow, which would
  # allocate that much.
  framed = frames(path)
  try:
    # TensorFlow calls it deprecated, in a log that is off. tf.data, the alternative, would start
    # the runtime before a training sets the number of threads.
    read = tf.compat.v1.io.tf_record_iterator(path)
    for number, (_, record) in enumerate(zip(framed, read), 1):
      fault = _fault(record, num_classes)
      if fault:
        raise record_error(path, number, fault)
  except tf.errors.DataLossError:
    fault = 'its bytes do not match its checksum'
    raise record_error(path, number + 1, fault) from None
  return number


def _fault(record: bytes, num_classes: int) -> str:
  """Returns what is wrong with a serialized Example; '' if nothing is."""
  try:
    feature = tf.train.Example.FromString(record).features.feature
  except Exception:  # Protobuf's own error, whose module depends on the release.
    return 'it is no tf.train.Example'
  missing = [f'`{name}`' for name in ('image', 'label') if name not in feature]
  if missing:
    there = _listed([repr(name) for name in sorted(feature)]) or 'none'
    return f'it has no feature {" and ".join(missing)}; its features: {there}'
  images, labels = feature['image'].bytes_list.value, feature['label'].int64_list.value
  if len(images) != 1:
    return f'its `image` is no string of {IMAGE_BYTES} bytes but {_described(feature["image"])}'
  if len(images[0]) != IMAGE_BYTES:
    return f'its `image` has {len(images[0])} bytes, not {IMAGE_BYTES}'
  if len(labels) != 1:
    return f'its `label` is no whole number but {_described(feature["label"])}'
  [label] = labels
  return '' if 0 <= label < num_classes else f'its `label` is {label}, not 0 to {num_classes - 1}'


def _described(feature: tf.train.Feature) -> str:
  """Describes a feature in a few words: '2 strings', 'nothing'."""
  kinds = {
    'strings': feature.bytes_list.value,
    'whole numbers': feature.int64_list.value,
    'numbers with a fraction': feature.float_list.value,
  }
  return ', '.join(f'{len(each)} {kind}' for kind, each in kinds.items() if each) or 'nothing'


def _listed(names: Sequence[str]) -> str:
  shown = ', '.join(name if len(name) < 40 else name[:40] + '...' for name in names[:_MOST_SHOWN])
  return shown + (f' and {len(names) - _MOST_SHOWN} more' if len(names) > _MOST_SHOWN else '')
