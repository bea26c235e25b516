"""Makes TFRecord files (train, validation, eval) of CIFAR-10, CIFAR-100 or your own images.

  python generate_cifar10_tfrecords.py --data-dir DATA

uses DATA/cifar-10-python.tar.gz or DATA/cifar-10-batches-py/ where there is one, and downloads the
published archive otherwise; with --dataset cifar100, DATA/cifar-100-python.tar.gz and so on.

  python generate_cifar10_tfrecords.py --data-dir DATA --images PHOTOS

takes the PNG, JPEG and WebP files in PHOTOS/CLASS/ for each class, or in PHOTOS/train/CLASS/,
PHOTOS/validation/CLASS/ and PHOTOS/eval/CLASS/.

A second run verifies the files and changes nothing. The manifest beside the record files,
DATA/cifar10.json, tells cifar10_main.py which data set they hold.
"""

import argparse
import functools
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from cifar10.core import cli, files, lock, logs, start_tensorflow
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import info, manifest
from cifar10.data.build import archive, image_folder, sources, writer
from cifar10.data.build.archive import download_and_extract
from cifar10.data.build.writer import convert_to_tfrecord

__all__ = ['convert_to_tfrecord', 'download_and_extract', 'generate', 'main', 'parse']

LOCK = 'cifar10.lock'
_MOST_SYNTHETIC = 100_000  # Images of a batch; each takes 130 kB of memory while it is made.


def main(data_dir: str | None = None) -> None:
  """The command: makes the files, prints their counts as one JSON line.

  Args:
    data_dir: makes CIFAR-10's files there, whatever the command line says.
  """
  flags = parse(None if data_dir is None else ['--data-dir', data_dir])
  logs.set_up()
  if data_dir is None:  # Reading images would take a GPU's memory.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  cli.print_result(files.json_text(generate(flags)))


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
  """The flags, by default of the command line; raises InputError for those that are refused."""
  flags = _parser().parse_args(words)
  _check(flags)
  return flags


def generate(flags: argparse.Namespace) -> dict[str, Any]:
  """Makes the record files and the manifest unless they exist.

  Returns:
    The data dir, the data set, its source, the number of examples of each split, and how many
    image files could not be read.

  Raises:
    InputError: the source is not as it should be, or the folder has other records.
  """
  data_dir, source = flags.data_dir, _source(flags)
  with files.naming_errors('--data-dir', data_dir):
    lacking = [] if flags.force else writer.lacking(data_dir, source)
    if lacking or flags.force:
      if 0 < len(lacking) < len(manifest.SUBSETS):
        log.info('missing or damaged: %s; making all', ', '.join(lacking))
      with files.refusing_errors('--data-dir', data_dir):
        files.make_folder(data_dir)
      refusal = '{holder} makes its files; wait for its end, or name another'
      path = os.path.join(data_dir, LOCK)
      with lock.locked(path, f'--data-dir {data_dir}: {refusal}', claims=data_dir):
        start_tensorflow.start()
        # Another process may have made them meanwhile, from another source perhaps.
        if flags.force or writer.lacking(data_dir, source):
          writer.convert(data_dir, source)
    else:
      log.info('%s holds all records and they are intact; nothing to do', data_dir)
  content = manifest.read_manifest(data_dir) or {}
  return {
    'data_dir': data_dir,
    **source.identity,
    'num_classes': info.describe(data_dir).num_classes,
    'examples': {name: content['subsets'][name]['examples'] for name in manifest.SUBSETS},
    **{key: value for key, value in content.items() if key == 'unreadable'},
  }


def _source(flags: argparse.Namespace) -> writer.ImageSource:
  """Returns the source that the flags select."""
  seed = flags.seed or 0
  if flags.images is not None:
    return image_folder.ImageFolder(flags.images, flags.name, flags.split, seed)
  return sources.ArchiveSource(
    archive.PUBLISHED[flags.dataset or 'cifar10'],
    flags.labels or 'fine',
    path=flags.archive,
    url=flags.url,
    synthetic_images=flags.synthetic,
    seed=seed,
  )


def _check(flags: argparse.Namespace) -> None:
  """Raises InputError for flags without a use, values out of range and paths that cannot be."""
  has_images, is_synthetic = flags.images is not None, flags.synthetic is not None
  for name, has_use, owner in (
    ('dataset', not has_images, 'archives, not to --images'),
    ('labels', not has_images, 'archives, not to --images'),
    ('name', has_images, '--images FOLDER'),
    ('split', has_images, '--images FOLDER'),
    ('seed', has_images or is_synthetic, '--synthetic N and --images FOLDER'),
  ):
    if getattr(flags, name) is not None and not has_use:
      raise InputError(f'--{name} belongs to {owner}; leave it out')
  if is_synthetic and not 1 <= flags.synthetic <= _MOST_SYNTHETIC:
    raise InputError(f'--synthetic is {flags.synthetic}: it must be 1 to {_MOST_SYNTHETIC} images')
  if flags.seed is not None and flags.seed < 0:
    raise InputError(f'--seed is {flags.seed}: it must be 0 or more')
  if flags.archive is not None and not files.exists(flags.archive):
    raise InputError(f'--archive {flags.archive!r} does not exist; leave it out to download')
  if flags.labels == 'coarse' and flags.dataset != 'cifar100':
    raise InputError('--labels coarse belongs to --dataset cifar100; CIFAR-10 has one kind')
  if has_images and files.is_url(flags.images):
    raise InputError(f'--images {flags.images} is a URL; copy the images to a local folder')
  # The records would lie among the images and be taken for a class.
  if has_images and files.is_inside(flags.data_dir, flags.images):
    raise InputError(f'--data-dir {flags.data_dir} lies in --images {flags.images}; name another')


def _split(text: str) -> tuple[float, ...]:
  try:
    shares = tuple(map(float, text.split(',')))
  except ValueError:
    shares = ()
  is_split = len(shares) == len(manifest.SUBSETS) and all(share > 0 for share in shares)
  if not is_split or abs(sum(shares) - 1) > 1e-6:
    raise argparse.ArgumentTypeError(
      f'{text!r} is not three numbers above 0, with sum 1 and commas between: train, validation, '
      'eval'
    )
  return shares


class _Parser(cli.OneLineParser):
  """Fails by an InputError, also where Python asks."""

  def error(self, message: str) -> NoReturn:
    raise InputError(f'{message}; see --help')


def _parser() -> argparse.ArgumentParser:
  parser = _Parser(description=__doc__)
  add = parser.add_argument
  add(
    '--data-dir',
    default='.',
    help='a folder for the files, or a URL such as gs://bucket/data (default: the current folder)',
  )
  add('--force', action='store_true', help='make all files again, even if they exist')
  add('--seed', type=int, help='random seed of --synthetic and of dividing --images (default: 0)')
  group = parser.add_argument_group('the images, if not of the archive in the data dir: one of')
  add_source = group.add_mutually_exclusive_group().add_argument
  add_source('--archive', metavar='FILE', help='read this archive, or URL')
  add_source('--url', help='download the archive from this address, not from the original one')
  add_source('--synthetic', type=int, metavar='N', help='generate 6 batches of N images')
  add_source('--images', metavar='FOLDER', help='a folder with a sub-folder of images a class')
  add = parser.add_argument_group('of archives and synthetic images').add_argument
  add('--dataset', choices=archive.PUBLISHED, help='the archive (default: cifar10)')
  add(
    '--labels',
    choices=archive.CIFAR100.labels,
    help="CIFAR-100's 100 fine or 20 coarse classes (default: fine)",
  )
  add = parser.add_argument_group('of own images').add_argument
  add('--name', help="of the data set (default: the folder's)")
  add(
    '--split',
    type=_split,
    metavar='T,V,E',
    help='the shares of train, validation and eval, if the folder does not have these three '
    f'(default: {",".join(map(str, image_folder.DEFAULT_SPLIT))})',
  )
  return parser


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
