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
import contextlib
import functools
import os
import shlex
from collections.abc import Iterable, Sequence

from cifar10.core import cli, files, lock, logs, start_tensorflow
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.data.build import archive, image_folder, synthetic
from cifar10.data.build.archive import download_and_extract

__all__ = ['convert_to_tfrecord', 'download_and_extract', 'generate', 'main', 'parse']

_MOST_SYNTHETIC = 100_000  # Images of a batch; each takes 130 kB of memory while it is made.
_OF_IMAGES, _OF_ARCHIVES = ('name', 'split'), ('dataset', 'labels')


def main(data_dir: str | None = None) -> None:
  """The command: makes the files, prints their counts as one JSON line.

  With a data dir it makes CIFAR-10's files there, whatever the command line says.
  """
  flags = parse(None if data_dir is None else ['--data-dir', data_dir])
  logs.set_up()
  if data_dir is None:  # Reading images would take a GPU's memory.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  cli.print_result(files.json_text(generate(flags)))


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
  """The flags, by default of the command line; raises InputError for those that are refused."""
  flags = _parser(allow_abbrev=words is None).parse_args(words)
  given = flags.archive, flags.images
  flags.archive, flags.images = (path and files.absolute(path) for path in given)
  has_images, is_random = flags.images is not None, flags.synthetic is not None
  for name in _OF_ARCHIVES if has_images else _OF_IMAGES if is_random else (*_OF_IMAGES, 'seed'):
    if getattr(flags, name) is not None:
      raise InputError(f'--{name} has no use for this source; leave it out')
  if is_random and not 1 <= flags.synthetic <= _MOST_SYNTHETIC:
    raise InputError(f'--synthetic is {flags.synthetic}: it must be 1 to {_MOST_SYNTHETIC} images')
  if flags.seed is not None and flags.seed < 0:
    raise InputError(f'--seed is {flags.seed}: it must be 0 or more')
  if flags.labels == 'coarse' and flags.dataset != 'cifar100':
    raise InputError('--labels coarse belongs to --dataset cifar100; CIFAR-10 has one kind')
  # The records would lie among the images and be taken for a class.
  if has_images and f'{files.absolute(flags.data_dir)}/'.startswith(f'{flags.images}/'):
    raise InputError(f'--data-dir {flags.data_dir} lies in --images {flags.images}; name another')
  return flags


def generate(flags: argparse.Namespace) -> dict[str, object]:
  """Makes the record files and the manifest unless they exist; returns what they hold.

  Raises InputError where the source is not as it should be, or the folder has other records.
  """
  data_dir, source = flags.data_dir, _source(flags)
  with files.naming_errors('--data-dir', data_dir):
    lacking = _lacking(data_dir, source, flags.force)
    if 0 < len(lacking) < len(manifest.SUBSETS):
      log.info(f'missing or damaged: {", ".join(lacking)}; making all')
    if lacking:
      with files.naming_errors('--data-dir', data_dir, is_first=True):
        files.make_folder(data_dir)
      refusal = f'--data-dir {data_dir}: {{holder}} makes its files; wait, or name another'
      with lock.locked(os.path.join(data_dir, 'cifar10.lock'), refusal, claims=data_dir):
        # Another process may have made them meanwhile, from another source perhaps.
        if _lacking(data_dir, source, flags.force):
          start_tensorflow.start()
          _convert(data_dir, source, _selecting(flags))
    else:
      log.info('%s holds all records and they are intact; nothing to do', data_dir)
  content = manifest.read_manifest(data_dir) or {}
  return {
    'data_dir': data_dir,
    **source.identity,
    'num_classes': manifest.describe(data_dir).num_classes,
    'examples': {name: content['subsets'][name]['examples'] for name in manifest.SUBSETS},
    **{key: value for key, value in content.items() if key == 'unreadable'},
  }


def _lacking(data_dir: str, source: archive.Source, force: bool) -> list[str]:
  """Returns the record files of a source that are not in a data dir, or are damaged; all by force.

  Raises InputError for records of another source, and for those without a manifest (by an older
  program), which would be overwritten.
  """
  paths = _paths(data_dir)
  content = None if force else manifest.read_manifest(data_dir)
  if force or (content is None and not any(map(files.exists, paths.values()))):
    return [*paths.values()]
  there = {'name': manifest.CIFAR10.name, **(content or {})}  # Format 1 has no names.
  differing = [
    f'{key} is {there.get(key, "unknown")} there and {value} here'
    for key, value in source.identity.items()
    if there.get(key) != value
  ]
  if differing:
    raise InputError(
      f'{data_dir} holds other records: {"; ".join(differing)}; name another --data-dir, or '
      '--force to replace them'
    )
  digests = manifest.digests(data_dir) or {}
  return [
    path
    for split, path in paths.items()
    if not files.is_file(path) or manifest.file_digest(path) != digests.get(split)
  ]


def _convert(data_dir: str, source: archive.Source, selecting: str) -> None:
  """Writes all splits and the manifest, or nothing, while holding the data dir's lock."""
  paths = _paths(data_dir)
  for path in (*paths.values(), manifest.manifest_path(data_dir)):
    files.remove_unfinished(path)
  opened = source.open()
  entries = {}
  with contextlib.ExitStack() as stack:
    for split, path in paths.items():
      temporary = stack.enter_context(files.replacing(path))
      entries[split] = manifest.entry(path, _write(temporary, opened.splits[split]), temporary)
    content = {
      'format': manifest.FORMAT,
      **source.identity,
      **opened.remarks,
      'flags': selecting,
      **opened.data.to_json(),
      'subsets': entries,
    }
    # Before the record files get their names: if it is there and one of them is not, the next run
    # detects that this one was killed in between.
    manifest.write_manifest(data_dir, content)


def convert_to_tfrecord(input_files: Sequence[str], output_file: str) -> int:
  """Writes the examples in pickled batches of CIFAR-10 to one record file; returns how many.

  Records have the features `image` (bytes [3072]) and `label` (int64).
  """
  return _write(output_file, archive.read_batches(input_files))


def _write(path: str, examples: Iterable[archive.Example]) -> int:
  from cifar10.data import records  # noqa: PLC0415  (TensorFlow, for which refusals do not wait)

  split = os.path.basename(path).partition('.')[0]
  with logs.bar(examples, unit=' images', desc=split) as shown:
    return records.write_examples(path, shown)


def _paths(data_dir: str) -> dict[str, str]:
  return {split: manifest.record_path(data_dir, split) for split in manifest.SUBSETS}


def _source(flags: argparse.Namespace) -> archive.Source:
  seed = flags.seed or 0
  if flags.images is not None:
    return image_folder.image_folder(flags.images, flags.name, flags.split, seed)
  published = archive.PUBLISHED[flags.dataset or 'cifar10']
  labels = published.labels[flags.labels or 'fine']
  identity: dict[str, object] = {'name': labels.name, 'source': 'published'}
  if flags.synthetic is not None:
    identity |= {'source': 'synthetic', 'images_per_batch': flags.synthetic, 'seed': seed}

  def opened() -> archive.Opened:
    if flags.synthetic is not None:
      folder = synthetic.write_synthetic(flags.data_dir, flags.synthetic, seed, published)
    else:
      where = {'archive': flags.archive, 'url': flags.url}
      folder = download_and_extract(flags.data_dir, published=published, **where)
    return archive.opened(folder, published, labels)

  return archive.Source(identity, opened)


def _selecting(flags: argparse.Namespace) -> str:
  """Returns the flags that select the source, as they would be typed in any folder."""
  words: list[str] = []
  for name in ('dataset', 'labels', 'archive', 'synthetic', 'images', 'name', 'split', 'seed'):
    if (value := getattr(flags, name)) is not None:
      words += [f'--{name}', ','.join(map(str, value)) if name == 'split' else str(value)]
  return shlex.join(words)


def shares(text: str) -> tuple[float, ...]:
  """The type of --split."""
  found = tuple(map(float, text.split(',')))
  is_split = len(found) == len(manifest.SUBSETS) and all(share > 0 for share in found)
  if not is_split or abs(sum(found) - 1) > 1e-6:
    raise argparse.ArgumentTypeError(f'{text!r} is not three numbers above 0 whose sum is 1')
  return found


def _parser(*, allow_abbrev: bool = True) -> argparse.ArgumentParser:
  parser = cli.OneLineParser(description=__doc__, allow_abbrev=allow_abbrev)
  add = parser.add_argument
  add('--data-dir', default='.', help='a folder or URL such as gs://bucket/data (default: here)')
  add('--force', action='store_true', help='make all files again, even if they exist')
  add('--seed', type=int, help='random seed of --synthetic and of dividing --images (default: 0)')
  group = parser.add_argument_group('the images, if not of the archive in the data dir: one of')
  add = group.add_mutually_exclusive_group().add_argument
  add('--archive', type=cli.path, metavar='FILE', help='read this archive, or URL')
  add('--url', help='download the archive from this address, not from the original one')
  add('--synthetic', type=int, metavar='N', help='generate 6 batches of N images')
  add('--images', type=cli.path, metavar='FOLDER', help='a folder with one for each class')
  add = parser.add_argument_group('of archives and synthetic images').add_argument
  add('--dataset', choices=archive.PUBLISHED, help='the archive (default: cifar10)')
  kinds = archive.CIFAR100.labels
  add('--labels', choices=kinds, help="CIFAR-100's 100 fine or 20 coarse classes (default: fine)")
  add = parser.add_argument_group('of own images').add_argument
  add('--name', help="of the data set (default: the folder's)")
  default = ','.join(map(str, image_folder.DEFAULT_SPLIT))
  add(
    '--split',
    type=shares,
    metavar='T,V,E',
    help=f'the shares of train, validation and eval, if the folder lacks them (default: {default})',
  )
  return parser


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
