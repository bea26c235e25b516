"""Record files that no manifest vouches for, or of another form: each record is looked at.

TensorFlow's own reader, which also compares the checksums, takes half a second for 50,000 of them.
"""

from collections.abc import Iterator, Sequence

import tensorflow as tf

from cifar10.data import manifest
from cifar10.data.info import IMAGE_BYTES

_MOST_SHOWN = 3  # Features that a record has in place of those that it should have.


def count(path: str, num_classes: int) -> int:
  """How many records a file has; raises DamagedError, naming it, at the first that is wrong."""
  number = 0
  # A length that leads beyond the end of the file must not reach TensorFlow, which would allocate
  # so much: the frames come first.
  frames = manifest.frames(path)
  try:
    for number, (_, record) in enumerate(zip(frames, _read(path)), 1):
      fault = _fault(record, num_classes)
      if fault:
        raise manifest.record_error(path, number, fault)
  except tf.errors.DataLossError:
    fault = 'its bytes are not those that its checksum is of'
    raise manifest.record_error(path, number + 1, fault) from None
  return number


def _read(path: str) -> Iterator[bytes]:
  # TensorFlow calls it deprecated, and says so in a log that is off. tf.data, which it names in its
  # place, would start the runtime, before a training says how many threads that may have.
  return tf.compat.v1.io.tf_record_iterator(path)


def _fault(record: bytes, num_classes: int) -> str:
  """What is wrong with a serialized Example; empty where nothing is."""
  try:
    feature = tf.train.Example.FromString(record).features.feature
  except Exception:  # Protobuf's own, whose module is another in each of its lines.
    return 'it is no tf.train.Example'
  missing = [f'`{name}`' for name in ('image', 'label') if name not in feature]
  if missing:
    there = _listed([repr(name) for name in sorted(feature)]) or 'none'
    return f'it has no feature {" and ".join(missing)}; its features: {there}'
  return _image_fault(feature['image']) or _label_fault(feature['label'], num_classes)


def _image_fault(feature: tf.train.Feature) -> str:
  images = feature.bytes_list.value
  if len(images) != 1:
    return f'its `image` is no string of {IMAGE_BYTES} bytes but {_described(feature)}'
  size = len(images[0])
  return '' if size == IMAGE_BYTES else f'its `image` has {size} bytes, not {IMAGE_BYTES}'


def _label_fault(feature: tf.train.Feature, num_classes: int) -> str:
  labels = feature.int64_list.value
  if len(labels) != 1:
    return f'its `label` is no whole number but {_described(feature)}'
  [label] = labels
  return '' if 0 <= label < num_classes else f'its `label` is {label}, not 0 to {num_classes - 1}'


def _described(feature: tf.train.Feature) -> str:
  """What a feature has, in a few words: '2 strings', 'nothing'."""
  kinds = {
    'strings': feature.bytes_list.value,
    'whole numbers': feature.int64_list.value,
    'numbers with a fraction': feature.float_list.value,
  }
  return ', '.join(f'{len(each)} {kind}' for kind, each in kinds.items() if each) or 'nothing'


def _listed(names: Sequence[str]) -> str:
  shown = ', '.join(name if len(name) < 40 else name[:40] + '...' for name in names[:_MOST_SHOWN])
  return shown + (f' and {len(names) - _MOST_SHOWN} more' if len(names) > _MOST_SHOWN else '')
