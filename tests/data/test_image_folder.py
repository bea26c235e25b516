"""Folders of images: which files are whose class, and which split's."""

import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import InputError, StorageError
from cifar10.data import image_files
from cifar10.data.build.image_folder import image_folder


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
  read = image_folder(folder, **keywords).open().splits
  return {split: [(image[0], label) for image, label in read[split]] for split in read}


def classes(folder):
  return image_folder(str(folder)).open().data.classes


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


def test_an_image_that_the_storage_does_not_give_is_not_left_out(tmp_path, monkeypatch):
  source = image_folder(fill(tmp_path, cat=10, dog=10))
  stale = StorageError('image a.png cannot be read (Stale file handle)')
  monkeypatch.setattr(image_files, 'read_image', mock.Mock(side_effect=stale))
  with pytest.raises(StorageError, match='Stale file handle'):
    source.open()


def test_a_seed_fixes_division_and_order_and_the_file_systems_order_does_not(tmp_path, monkeypatch):
  folder = fill(tmp_path, cat=10, dog=10)
  usual, identity = splits(folder, seed=1), image_folder(folder).identity
  assert splits(folder, seed=2) != usual
  labels = [label for _, label in usual['train']]
  assert labels != sorted(labels)  # Not one class after the other.
  listed = os.listdir
  monkeypatch.setattr(os, 'listdir', lambda folder: sorted(listed(folder), reverse=True))
  assert splits(folder, seed=1) == usual
  assert image_folder(folder).identity == identity


def test_classes_are_the_sub_folders_sorted_whatever_they_are_called(tmp_path):
  names = ['two words', '<b>&', 'Zebra', "it's", '%s', '猫', '-rf', '$(id)', 'train', 'eval']
  fill(tmp_path, **dict.fromkeys(names, 3))
  # Hidden files, and those of no class, are left out.
  (tmp_path / '.git').mkdir()
  (tmp_path / 'Zebra' / '.DS_Store').touch()
  (tmp_path / 'notes.txt').touch()
  assert image_folder(str(tmp_path)).identity['files'] == 3 * len(names)
  assert classes(tmp_path) == tuple(sorted(names))


@pytest.fixture
def divided(tmp_path):
  """Folders train, validation and eval with the classes cat and dog in them."""
  for split, count in [('train', 9), ('validation', 2), ('eval', 3)]:
    fill(tmp_path / 'photos' / split, cat=count, dog=count)
  return tmp_path / 'photos'


def test_folders_of_splits_are_the_splits_and_validation_is_of_train_where_it_is_missing(divided):
  found = splits(str(divided))
  assert counts(found) == {'train': (9, 9), 'validation': (2, 2), 'eval': (3, 3)}
  with pytest.raises(InputError, match='--split has no use'):
    image_folder(str(divided), split=(0.8, 0.1, 0.1))
  (divided / 'validation').rename(divided.parent / 'elsewhere')
  # 0.1 / (0.8 + 0.1) of 9 is 1; 0.5 / (0.25 + 0.5) of 9 is 6.
  assert counts(splits(str(divided))) == {'train': (8, 8), 'validation': (1, 1), 'eval': (3, 3)}
  found = splits(str(divided), split=(0.25, 0.5, 0.25))
  assert counts(found) == {'train': (3, 3), 'validation': (6, 6), 'eval': (3, 3)}
  assert sorted(found['train'] + found['validation']) == [(n, c) for n in range(9) for c in (0, 1)]


def test_refuses_in_one_line_what_has_no_classes(tmp_path, divided):
  fill(tmp_path / 'one', cat=3)
  fill(tmp_path / 'empty', cat=3, dog=0)
  fill(tmp_path / 'other' / 'train', cat=3, dog=3)
  fill(tmp_path / 'other' / 'test', cat=3, dog=3)
  for name in ('\x1b[31m', os.fsdecode(b'\xff'), ' '):
    fill(tmp_path / f'named {ord(name[0])}', **{name: 3, 'dog': 3})
  for folder, message in [
    ('none', 'cannot be listed .No such file'),
    ('one', r"has classes \['cat'\]: it must be 2 to 2000 different names"),
    ('empty', 'dog must hold images'),
    ('other', 'test must hold images, and no folders: only train, validation and eval may hold'),
    *((f'named {number}', 'has classes .* names of one line') for number in (27, 0xDCFF, 32)),
  ]:
    with pytest.raises(InputError, match=message) as refusal:
      image_folder(str(tmp_path / folder))
    assert str(refusal.value).isprintable()
  eval_folder = divided / 'eval'
  for path, moved in [(eval_folder / 'dog', eval_folder / 'Dog'), (eval_folder, tmp_path / 'gone')]:
    path.rename(moved)
    with pytest.raises(InputError, match='must have the folders train and eval'):
      image_folder(str(divided))
  fill(tmp_path / 'small', cat=2, dog=5)
  (tmp_path / 'small' / 'cat' / 'bad.png').touch()  # No image, which only reading it shows.
  with pytest.raises(InputError, match='class cat has too few images for train'):
    classes(tmp_path / 'small')


def test_other_files_make_another_identity(tmp_path):
  folder = fill(tmp_path / 'photos', cat=3, dog=3)
  before = image_folder(f'{folder}/').identity
  settings = {'name': 'photos', 'source': 'images', 'split': [0.8, 0.1, 0.1], 'seed': 0, 'files': 6}
  assert before == {**settings, 'listing_sha256': before['listing_sha256']}
  (tmp_path / 'photos').rename(tmp_path / 'moved')
  moved = str(tmp_path / 'moved')
  assert image_folder(moved, name='photos').identity == before
  (tmp_path / 'moved' / 'cat' / '00.png').write_bytes(b'shorter')
  assert image_folder(moved, name='photos').identity != before
  with pytest.raises(InputError, match="has name '': it must be text"):
    image_folder(moved, name='')
