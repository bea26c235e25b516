"""Turns the CIFAR-10 archive into train, validation and eval TFRecord files.

  python generate_cifar10_tfrecords.py --data-dir DATA

uses DATA/cifar-10-python.tar.gz or DATA/cifar-10-batches-py/ where there is one, and downloads the
published archive otherwise. Run again, it verifies what is there and does nothing.
"""

import argparse
import json
import logging
import os
from typing import Any

from cifar10 import quiet

quiet.import_tensorflow()  # Before the modules that import it.

from cifar10 import archive, errors, records  # noqa: E402
from cifar10.errors import InputError  # noqa: E402

log = logging.getLogger('cifar10')


def main() -> None:
  """The command: parses the flags, makes the files, prints their counts as one JSON line."""
  flags = _parser().parse_args()
  if flags.synthetic is not None and flags.synthetic < 1:
    raise InputError(f'--synthetic is {flags.synthetic}: it must be 1 or more images per batch')
  if flags.archive and not os.path.exists(flags.archive):
    raise InputError(f'--archive {flags.archive} does not exist; leave it out to download')
  if flags.archive and flags.synthetic:
    raise InputError('--archive and --synthetic name two sources; give one of them')
  logging.basicConfig(format='%(asctime)s %(message)s', datefmt='%H:%M:%S', level=logging.WARNING)
  log.setLevel(logging.INFO)
  print(json.dumps(generate(flags)))


def generate(flags: argparse.Namespace) -> dict[str, Any]:
  """Makes the record files and the manifest where they are not there yet.

  Returns:
    The data dir, the source, and how many examples each split has.

  Raises:
    InputError: see `_missing_subsets`, and everything that archive.py refuses.
  """
  source = _describe_source(flags)
  try:
    os.makedirs(flags.data_dir, exist_ok=True)
    missing = records.SUBSETS if flags.force else _missing_subsets(flags.data_dir, source)
    if missing:
      _convert(flags, source, missing)
    else:
      log.info('%s holds all records and they are intact; nothing to do', flags.data_dir)
  except OSError as error:
    raise InputError(
      f'--data-dir {flags.data_dir} cannot be used ({error}); name another'
    ) from error
  counts = {name: records.num_examples(flags.data_dir, name) for name in records.SUBSETS}
  return {'data_dir': flags.data_dir, **source, 'examples': counts}


def _describe_source(flags: argparse.Namespace) -> dict[str, Any]:
  """What the manifest says of where the images come from."""
  if flags.synthetic:
    return {'source': 'synthetic', 'images_per_batch': flags.synthetic, 'seed': flags.seed}
  return {'source': 'published'}


def _missing_subsets(data_dir: str, source: dict[str, Any]) -> tuple[str, ...]:
  """The splits to write: those that are not there or not intact.

  Raises:
    InputError: the folder holds records of another source, or an older program's without a
      manifest, which would be overwritten.
  """
  manifest = records.read_manifest(data_dir)
  present = [s for s in records.SUBSETS if os.path.exists(records.record_path(data_dir, s))]
  if manifest is None:
    if len(present) == len(records.SUBSETS):
      raise InputError(
        f'{data_dir} holds record files without a manifest, which can be trained on as they are; '
        '--force replaces them'
      )
    # Fewer than all: a conversion that was interrupted before its manifest, or nothing.
    return records.SUBSETS
  differing = [
    f'{key} is {manifest.get(key)} there and {value} here'
    for key, value in source.items()
    if manifest.get(key) != value
  ]
  if differing:
    raise InputError(
      f'{data_dir} holds other records: {"; ".join(differing)}; name another --data-dir, or '
      '--force to replace them'
    )
  return tuple(s for s in records.SUBSETS if not _intact(data_dir, s, manifest['subsets'][s]))


def _intact(data_dir: str, subset: str, entry: dict[str, Any]) -> bool:
  path = records.record_path(data_dir, subset)
  if not os.path.exists(path):
    log.info('%s is missing: making it again', path)
    return False
  if os.path.getsize(path) != entry['bytes'] or records.file_digest(path) != entry['sha256']:
    log.info('%s is damaged: making it again', path)
    return False
  return True


def _convert(flags: argparse.Namespace, source: dict[str, Any], subsets: tuple[str, ...]) -> None:
  """Writes these splits, and then the manifest of all."""
  path, digests = _find_archive(flags)
  manifest = records.read_manifest(flags.data_dir) if not flags.force else None
  entries: dict[str, Any] = manifest['subsets'] if manifest else {}
  for subset in subsets:
    images, labels = archive.read_subset(path, subset, digests)
    record_path = records.record_path(flags.data_dir, subset)
    records.write_records(record_path, images, labels)
    entries[subset] = records.describe_subset(flags.data_dir, subset, len(labels))
    log.info('wrote %s: %s examples', record_path, f'{len(labels):,}')
  classes = list(records.CLASS_NAMES)
  records.write_manifest(
    flags.data_dir, {'format': 1, **source, 'classes': classes, 'subsets': entries}
  )


def _find_archive(flags: argparse.Namespace) -> tuple[str, dict[str, str]]:
  """The archive to read, made or downloaded if need be, and its members' digests."""
  if flags.synthetic:
    path = os.path.join(flags.data_dir, archive.SYNTHETIC_NAME)
    digests = archive.write_synthetic(path, flags.synthetic, flags.seed)
    log.info('made %s: 6 batches of %s images', path, f'{flags.synthetic:,}')
    return path, digests
  path = flags.archive or _local_archive(flags.data_dir)
  if not path:
    path = os.path.join(flags.data_dir, archive.ARCHIVE_NAME)
    log.info('downloading %s', flags.url)
    archive.download(flags.url, path)
  return path, archive.PUBLISHED_SHA256


def _local_archive(data_dir: str) -> str:
  """The archive or the unpacked folder in the data dir; empty where there is none."""
  for name in (archive.ARCHIVE_NAME, archive.FOLDER_NAME):
    if os.path.exists(path := os.path.join(data_dir, name)):
      return path
  return ''


def _parser() -> argparse.ArgumentParser:
  parser = errors.OneLineParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--data-dir', default='.', help='where the files go (default: the current folder)')
  add('--archive', metavar='FILE', help='read this archive instead of one in the data dir')
  add('--url', default=archive.URL, help='where the archive is published')
  add('--force', action='store_true', help='make all files again, whatever is there')
  add('--synthetic', type=int, metavar='N', help='generate N images a batch instead of CIFAR-10')
  add('--seed', type=int, default=0, help='of --synthetic (default: 0)')
  return parser


if __name__ == '__main__':
  errors.run_command(main)
