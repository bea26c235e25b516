"""Makes TFRecord files (train, validation, eval) of CIFAR-10, CIFAR-100 or your own images.

  python generate_cifar10_tfrecords.py --data-dir DATA

uses DATA/cifar-10-python.tar.gz or DATA/cifar-10-batches-py/ where there is one, and downloads the
published archive otherwise; with --dataset cifar100, DATA/cifar-100-python.tar.gz and so on.

  python generate_cifar10_tfrecords.py --data-dir DATA --images PHOTOS

takes the PNG and JPEG files in PHOTOS/CLASS/ for each class, or in PHOTOS/train/CLASS/,
PHOTOS/validation/CLASS/ and PHOTOS/eval/CLASS/.

A second run verifies the files and changes nothing. The manifest beside the record files,
DATA/cifar10.json, tells cifar10_main.py which data set they hold.
"""

if __name__ == '__main__':  # Before the imports, which Ctrl-C must not interrupt.
  from cifar10.core.errors import run_process

  run_process('generate_cifar10_tfrecords')

import argparse
import contextlib
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from cifar10.core import cli, errors, files, lock, logs, start_tensorflow, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import info, manifest
from cifar10.data.build import archive, image_folder, sources, synthetic

LOCK = 'cifar10.lock'


def main() -> None:
  """The command: parses the flags, makes the files, prints their counts as one JSON line."""
  flags = parse()
  logs.set_up()
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'  # Reading images would take a GPU's memory.
  errors.print_result(files.json_text(generate(flags)))


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
  source = _source(flags)
  with storage_errors.named('--data-dir', flags.data_dir), contextlib.ExitStack() as stack:
    before = None if flags.force else manifest.read_manifest(flags.data_dir)
    missing = manifest.SPLITS if flags.force else sources.missing_splits(flags.data_dir, source)
    if missing and flags.synthetic is not None:
      published = archive.PUBLISHED[flags.dataset or 'cifar10']
      synthetic.check_size(flags.synthetic, flags.data_dir, published)
    refusal = '{holder} makes its files; wait for its end, or name another'
    with storage_errors.refusing('--data-dir', flags.data_dir):
      files.make_folder(flags.data_dir)
      if missing:
        path = os.path.join(flags.data_dir, LOCK)
        refusal = f'--data-dir {flags.data_dir}: {refusal}'
        stack.enter_context(lock.locked(path, refusal, claims=flags.data_dir))
    if missing:
      # Another process may have made them, from another source perhaps.
      if not flags.force and manifest.read_manifest(flags.data_dir) != before:
        missing = sources.missing_splits(flags.data_dir, source)
      start_tensorflow.start()  # So late that --help, refusals and verifying do not wait.
      from cifar10.data.build import writer  # noqa: PLC0415

      if missing:
        writer.convert(flags.data_dir, source, missing)
    else:
      log.info('%s holds all records and they are intact; nothing to do', flags.data_dir)
  return _result(flags.data_dir, source)


def _result(data_dir: str, source: sources.ImageSource) -> dict[str, Any]:
  content = manifest.read_manifest(data_dir) or {}
  return {
    'data_dir': data_dir,
    **source.identity,
    'num_classes': info.describe(data_dir).num_classes,
    'examples': {name: content['subsets'][name]['examples'] for name in manifest.SPLITS},
    **{key: value for key, value in content.items() if key == 'unreadable'},
  }


def _source(flags: argparse.Namespace) -> sources.ImageSource:
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
  """Raises InputError for flags that contradict each other and numbers out of range."""
  if flags.images is not None:
    of_archives = ('dataset', 'labels', 'archive', 'url', 'synthetic')
    _refuse(flags, of_archives, 'and --images name two sources; give one of them')
    _check_apart(flags.images, flags.data_dir)
  else:
    _refuse(flags, ('name', 'split'), 'belongs to --images FOLDER; leave it out')
  if flags.synthetic is not None and flags.synthetic < 1:
    raise InputError(f'--synthetic is {flags.synthetic}: it must be 1 or more images per batch')
  if flags.seed is not None and flags.seed < 0:
    raise InputError(f'--seed is {flags.seed}: it must be 0 or more')
  if flags.images is None and flags.synthetic is None:
    _refuse(flags, ('seed',), 'belongs to --synthetic N and --images FOLDER; leave it out')
  if flags.url == '':
    raise InputError('--url is empty; name an address, or leave it out')
  if flags.archive is not None and not _is_there(flags.archive):
    raise InputError(f'--archive {flags.archive!r} does not exist; leave it out to download')
  given = _given(flags, ('archive', 'synthetic', 'url'))
  if len(given) > 1:
    raise InputError(f'{given[0]} and {given[1]} name two sources; give one of them')
  if flags.labels == 'coarse' and flags.dataset != 'cifar100':
    raise InputError('--labels coarse belongs to --dataset cifar100; CIFAR-10 has one kind')


def _is_there(archive_path: str) -> bool:
  try:
    return files.exists(archive_path)
  except OSError as error:  # An error of a URL.
    raise InputError(
      f'--archive {archive_path} cannot be read ({error.strerror}); name another'
    ) from None


def _check_apart(images: str, data_dir: str) -> None:
  """Raises InputError if the records would lie among the images and be taken for a class."""
  if files.is_url(images):
    raise InputError(f'--images {images} is a URL; copy the images to a local folder')
  if files.is_inside(data_dir, images):
    raise InputError(f'--data-dir {data_dir} lies in --images {images}; name one outside')


def _given(flags: argparse.Namespace, names: tuple[str, ...]) -> list[str]:
  return [f'--{name}' for name in names if getattr(flags, name) is not None]


def _refuse(flags: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
  if given := _given(flags, names):
    raise InputError(f'{given[0]} {reason}')


def _split(text: str) -> tuple[float, ...]:
  try:
    shares = tuple(float(part) for part in text.split(','))
  except ValueError:
    shares = ()
  if len(shares) != len(manifest.SPLITS) or not all(share > 0 for share in shares):
    raise argparse.ArgumentTypeError(
      f'{text!r} is not three numbers above 0 with commas between: train, validation, eval'
    )
  if not abs(sum(shares) - 1) < 1e-6:
    raise argparse.ArgumentTypeError(f'{text!r} sums to {sum(shares):g}, not 1')
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
  add = parser.add_argument_group('published archives').add_argument
  add('--dataset', choices=archive.PUBLISHED, help='the archive (default: cifar10)')
  add(
    '--labels',
    choices=archive.CIFAR100.labels,
    help="CIFAR-100's 100 fine or 20 coarse classes (default: fine)",
  )
  add('--archive', metavar='FILE', help='read this archive, or URL, instead of one in the data dir')
  add('--url', help='download the archive from this address, not from the original one')
  add('--synthetic', type=int, metavar='N', help='generate 6 batches of N images instead')
  add = parser.add_argument_group('own images').add_argument
  add('--images', metavar='FOLDER', help='has a sub-folder of PNG and JPEG files for each class')
  add('--name', help="of the data set (default: the folder's)")
  add(
    '--split',
    type=_split,
    metavar='T,V,E',
    help='the shares of train, validation and eval, if the folder does not have these three '
    f'(default: {",".join(map(str, image_folder.DEFAULT_SPLIT))})',
  )
  return parser
