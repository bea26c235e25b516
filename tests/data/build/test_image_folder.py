"""Folders of images: which files are whose class, and which split's."""

import errno
import os

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import InputError, StorageError
from cifar10.data import manifest
from cifar10.data.build.image_folder import ImageFolder


def fill(folder, **counts):
  """Makes FOLDER/CLASS/00.png and so on, each of one pixel that is as grey as its number."""
  for name, count in counts.items():
    (folder / name).mkdir(parents=True)
    for number in range(count):
      png = tf.io.encode_png(np.full([1, 1, 1], number, np.uint8))
      (folder / name / f'{number:02}.png').write_bytes(png.numpy())
  return str(folder)


def splits(folder, **keywords):
  """Each split's examples in order: an image's number, its label."""
  source = ImageFolder(folder, **keywords)
  with source.open(os.path.dirname(folder)):
    return {
      split: [(image[0], label) for image, label in source.examples(split).each]
      for split in manifest.SPLITS
    }


def classes(folder, **keywords):
  source = ImageFolder(str(folder), **keywords)
  with source.open(os.path.dirname(folder)) as found:
    return found


def counts(divided):
  """How many of class 0 and 1 each split has."""
  return {
    split: tuple(sum(label == wanted for _, label in labelled) for wanted in (0, 1))
    for split, labelled in divided.items()
  }


def test_each_class_is_divided_by_itself(tmp_path):
  folder = fill(tmp_path, cat=10, dog=25)
  # A tenth of 10 is 1; of 25, 2.5, which rounds to 3. Train has the rest.
  assert counts(splits(folder)) == {'train': (8, 19), 'validation': (1, 3), 'eval': (1, 3)}
  # A fifth of 10 is 2, three tenths are 3; of 25, 5 and 7.5, which rounds to 8.
  divided = splits(folder, split=(0.5, 0.2, 0.3))
  assert counts(divided) == {'train': (5, 12), 'validation': (2, 5), 'eval': (3, 8)}
  everything = [file for labelled in divided.values() for file in labelled]
  assert sorted(everything) == [
    *((number, label) for number in range(10) for label in (0, 1)),
    *((number, 1) for number in range(10, 25)),
  ]


def test_small_classes_are_in_every_split(tmp_path):
  folder = fill(tmp_path, cat=3, dog=3)
  assert counts(splits(folder)) == dict.fromkeys(('train', 'validation', 'eval'), (1, 1))


def test_only_what_can_be_read_is_divided(tmp_path):
  folder = fill(tmp_path, cat=10, dog=10)
  for number in range(5):
    (tmp_path / 'dog' / f'0{number}.bad').write_bytes(b'x')
  assert counts(splits(folder)) == {'train': (8, 8), 'validation': (1, 1), 'eval': (1, 1)}


@pytest.mark.parametrize('is_gone', [False, True])
def test_an_image_that_the_storage_does_not_give_is_not_left_out(tmp_path, monkeypatch, is_gone):
  folder = fill(tmp_path, cat=10, dog=10)
  source = ImageFolder(folder)
  path = f'{folder}/dog/03.png'
  stat = os.stat

  def fail(name, **named):
    if name == path:
      raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)
    return stat(name, **named)

  if is_gone:
    os.remove(path)
  else:
    monkeypatch.setattr(os, 'stat', fail)
  fault = 'has vanished; put it back' if is_gone else r'cannot be read \(Stale file handle\)'
  with pytest.raises(StorageError, match=f'^image {path} {fault}'), source.open(str(tmp_path)):
    pass


def test_a_class_may_be_too_small(tmp_path):
  with pytest.raises(InputError, match='class cat has 2 images, too few for train, validation, e'):
    ImageFolder(fill(tmp_path, cat=2, dog=5))
  (tmp_path / 'cat' / 'bad.png').touch()  # Three files, of which two can be read.
  with pytest.raises(InputError, match='class cat has 2 images'):
    classes(tmp_path)


def test_a_seed_fixes_division_and_order(tmp_path):
  folder = fill(tmp_path, cat=10, dog=10)
  assert splits(folder, seed=1) == splits(folder, seed=1)
  assert splits(folder, seed=1) != splits(folder, seed=2)
  labels = [label for _, label in splits(folder)['train']]
  assert labels != sorted(labels)  # Not one class after the other.


def test_the_file_systems_order_does_not_count(tmp_path, monkeypatch):
  folder = fill(tmp_path, cat=10, dog=10)
  usual, identity = splits(folder), ImageFolder(folder).identity
  listed = os.listdir
  monkeypatch.setattr(os, 'listdir', lambda path: sorted(listed(path), reverse=True))
  assert splits(folder) == usual
  assert ImageFolder(folder).identity == identity


def test_classes_are_the_sub_folders_sorted_whatever_they_are_called(tmp_path):
  names = ['two words', '<b>&', 'Zebra', 'ape', "it's", '"', '%s', '猫', '-rf', '$(id)', 'train']
  folder = fill(tmp_path, **dict.fromkeys(names, 3))
  assert classes(folder) == tuple(sorted(names))


@pytest.mark.parametrize('name', ['a\nb', 'a\x1b[31m', os.fsdecode(b'\xff'), ' '])
def test_refuses_class_names_that_cannot_be_written(tmp_path, name):
  fill(tmp_path, cat=3, dog=3)
  (tmp_path / name).mkdir()
  with pytest.raises(
    InputError, match=r'has a class .* a name must be text in one line'
  ) as refusal:
    ImageFolder(str(tmp_path))
  assert str(refusal.value).isprintable()


def test_hidden_files_are_not_images(tmp_path):
  fill(tmp_path, cat=3, dog=3)
  (tmp_path / '.git').mkdir()
  (tmp_path / 'cat' / '.DS_Store').touch()
  assert ImageFolder(str(tmp_path)).identity['files'] == 6


def test_files_of_no_class_are_named(tmp_path, caplog):
  caplog.set_level('INFO')
  fill(tmp_path, cat=3, dog=3)
  (tmp_path / 'notes.txt').touch()
  assert classes(tmp_path) == ('cat', 'dog')
  assert [r.getMessage() for r in caplog.records] == [
    f'{tmp_path}/notes.txt lies in no class: left out'
  ]


@pytest.fixture
def divided(tmp_path):
  """Folders train, validation and eval with the classes cat and dog in them."""
  for split, count in [('train', 9), ('validation', 2), ('eval', 3)]:
    fill(tmp_path / 'photos' / split, cat=count, dog=count)
  return tmp_path / 'photos'


def test_folders_of_splits_are_the_splits(divided):
  found = splits(str(divided))
  assert counts(found) == {'train': (9, 9), 'validation': (2, 2), 'eval': (3, 3)}
  labels = [label for _, label in found['train']]
  assert labels != sorted(labels)


def test_folders_of_splits_leave_nothing_to_divide(divided):
  with pytest.raises(InputError, match=r'--split 0\.8,0\.1,0\.1 has no use: .* leave it out'):
    ImageFolder(str(divided), split=(0.8, 0.1, 0.1))


def test_validation_is_taken_of_train_where_it_is_missing(divided, caplog):
  caplog.set_level('INFO')
  (divided / 'validation').rename(divided.parent / 'elsewhere')
  # 0.1 / (0.8 + 0.1) of 9 is 1; 0.5 / (0.25 + 0.5) of 9 is 6.
  assert counts(splits(str(divided))) == {'train': (8, 8), 'validation': (1, 1), 'eval': (3, 3)}
  found = splits(str(divided), split=(0.25, 0.5, 0.25))
  assert counts(found) == {'train': (3, 3), 'validation': (6, 6), 'eval': (3, 3)}
  assert sorted(found['train'] + found['validation']) == [(n, c) for n in range(9) for c in (0, 1)]
  assert 'there is no validation folder: taking some images of train' in caplog.text


@pytest.mark.parametrize('missing', ['train', 'eval'])
def test_train_and_eval_must_be_there(divided, missing):
  (divided / missing).rename(divided.parent / 'elsewhere')
  with pytest.raises(InputError, match=f'has the folder .* but not {missing}; add it'):
    ImageFolder(str(divided))


def test_splits_have_the_same_classes(divided):
  (divided / 'eval' / 'dog').rename(divided / 'eval' / 'Dog')
  message = "eval has other classes than train: it lacks 'dog' and has 'Dog'; give each"
  with pytest.raises(InputError, match=message):
    ImageFolder(str(divided))


def test_a_class_may_be_called_train(tmp_path):
  folder = fill(tmp_path, train=3, eval=3)
  assert classes(folder) == ('eval', 'train')


def test_folders_in_classes_are_refused(tmp_path):
  fill(tmp_path / 'train', cat=3, dog=3)
  fill(tmp_path / 'test', cat=3, dog=3)
  message = "test holds the folder 'cat': .* only train, validation and eval may hold classes"
  with pytest.raises(InputError, match=message):
    ImageFolder(str(tmp_path))


def test_refuses_too_few_classes_and_empty_ones(tmp_path):
  with pytest.raises(InputError, match='cannot be listed'):
    ImageFolder(str(tmp_path / 'none'))
  with pytest.raises(InputError, match='has 0 sub-folders: give each class one of its own'):
    ImageFolder(str(tmp_path))
  fill(tmp_path, cat=3)
  with pytest.raises(InputError, match='has 1 sub-folders'):
    ImageFolder(str(tmp_path))
  (tmp_path / 'dog').mkdir()
  with pytest.raises(InputError, match='dog holds no images; add some or remove it'):
    ImageFolder(str(tmp_path))


def test_other_files_make_another_identity(tmp_path):
  folder = fill(tmp_path / 'photos', cat=3, dog=3)
  before = ImageFolder(folder).identity
  assert before == {
    'name': 'photos',
    'source': 'images',
    'split': [0.8, 0.1, 0.1],
    'seed': 0,
    'files': 6,
    'listing_sha256': before['listing_sha256'],
  }
  (tmp_path / 'photos').rename(tmp_path / 'moved')
  moved = str(tmp_path / 'moved')
  assert ImageFolder(moved, name='photos').identity == before
  (tmp_path / 'moved' / 'cat' / '00.png').write_bytes(b'shorter')
  assert ImageFolder(moved, name='photos').identity != before


def test_the_name_is_the_folders_unless_it_has_one(tmp_path):
  folder = fill(tmp_path / 'photos', cat=3, dog=3)
  assert ImageFolder(f'{folder}/').identity['name'] == 'photos'
  assert ImageFolder(folder, name='My pets').identity['name'] == 'My pets'
  with pytest.raises(InputError, match="--name is '': it must be text"):
    ImageFolder(folder, name='')
