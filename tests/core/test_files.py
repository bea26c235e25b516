"""Files on the local disk, in TensorFlow's memory and on the local disk by its URL: all alike."""

import errno
import os
from os.path import join

import pytest
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError, StorageError


@pytest.fixture(params=['local', 'file://', 'ram://'])
def folder(request, tmp_path):
  """A folder that is there and empty, and no other test's."""
  path = {'local': '', 'file://': 'file://', 'ram://': 'ram:/'}[request.param] + str(tmp_path)
  files.make_folder(path)
  return path


def names(folder):
  return [os.path.basename(path) for path in files.matching(folder, '*')]


def test_a_file_is_whole_or_the_one_before(folder):
  path = join(folder, 'text.txt')
  files.write_text(path, 'a longer text: ä\n')
  files.write_text(path, 'ö\n')
  with pytest.raises(ZeroDivisionError), files.writing(path) as file:
    file.write(b'half')
    raise ZeroDivisionError
  assert files.read(path).decode() == 'ö\n'
  assert files.signature(path)[0] == 3
  assert names(folder) == ['text.txt']


def test_replacing_gives_a_local_name_to_write_to(folder):
  with files.replacing(join(folder, 'new')) as temporary:
    with open(temporary, 'wb') as file:  # As a library with files of its own does.
      file.write(b'content')
    assert not files.exists(join(folder, 'new'))
  with files.opened(join(folder, 'new')) as file:
    assert (file.read(3), file.seek(0), file.read()) == (b'con', 0, b'content')
  assert not os.path.exists(temporary)


def test_what_is_there(folder):
  below = join(folder, 'a [1]', 'b')
  files.make_folder(below)
  for name in ('model.ckpt-1.index', 'model.ckpt-10.index'):
    files.write_text(join(below, name), 'x')
  looks = (files.exists, files.is_dir, files.is_file)
  assert [look(below) for look in looks] == [True, True, False]
  assert [look(join(below, 'model.ckpt-1.index')) for look in looks] == [True, False, True]
  assert [look(join(folder, 'none')) for look in looks] == [False, False, False]
  assert files.matching(below, 'model.ckpt-1.*') == [join(below, 'model.ckpt-1.index')]
  assert names(below) == ['model.ckpt-1.index', 'model.ckpt-10.index']
  assert files.matching(join(folder, 'none'), '*') == []


def test_removing_moving_and_copying(folder):
  files.write_text(join(folder, 'one'), '1')
  files.copy(join(folder, 'one'), join(folder, 'two'))
  files.move(join(folder, 'one'), join(folder, 'three'))
  assert names(folder) == ['three', 'two']
  files.remove(join(folder, 'three'))
  assert files.read(join(folder, 'two')) == b'1'
  files.make_folder(join(folder, 'sub'))
  files.write_text(join(folder, 'sub', 'x'), 'x')
  files.remove_folder(join(folder, 'sub'))
  assert names(folder) == ['two']


def test_what_is_missing_is_named_as_python_does(folder):
  for look in (files.read, files.signature, files.remove, files.opened):
    with pytest.raises(FileNotFoundError) as error:
      look(join(folder, 'none'))
    assert error.value.filename == join(folder, 'none')


def test_what_a_killed_process_left_is_removed(folder):
  kept = ['config.json', 'config.json.notes.tmp', 'other.json.17.tmp']
  for name in ('config.json.17.tmp', *kept):
    files.write_text(join(folder, name), '')
  files.remove_unfinished(join(folder, 'config.json'))
  assert names(folder) == kept


def test_paths():
  assert files.absolute('gs://b/job/') == files.absolute('gs://b/job') == 'gs://b/job'
  assert files.absolute('x') == os.path.join(os.getcwd(), 'x')
  assert not files.is_url('./gs://b')
  assert not files.is_url('://b')


def test_a_place_that_cannot_be_reached_is_not_taken_for_an_empty_one(monkeypatch):
  """A job would begin anew there. TensorFlow says of such a folder that there is none."""

  def fail(path):
    raise tf.errors.UnavailableError(None, None, f'no route to {path}\nmore')

  gfile = type('Unreachable', (), {'exists': fail, 'stat': fail})
  monkeypatch.setattr(files, '_gfile', lambda url: gfile)
  for look in (files.exists, files.is_dir, files.is_file, lambda path: files.matching(path, '*')):
    with pytest.raises(OSError, match='no route to gs://b/job') as error:
      look('gs://b/job')
    assert error.value.errno == errno.EIO


@pytest.mark.parametrize('path', ['lr[0.1]', '*/job', 'gs://b/a\\b'])
def test_paths_that_tensorflow_takes_for_patterns_are_refused(path):
  with pytest.raises(InputError, match='name another folder, and move there what this one has'):
    files.check_no_pattern(path, '--job-dir')


def error_of_a_save():
  """TensorFlow's, which replaces the one that says why."""
  error = ValueError("Parent directory of gone/model.ckpt doesn't exist, can't save.")
  why = 'gone/checkpoint.tmp; No such file or directory'
  error.__context__ = tf.errors.NotFoundError(None, None, why)
  return error


@pytest.mark.parametrize(
  ('error', 'said'),
  [
    (PermissionError(errno.EACCES, 'Permission denied'), r'\(Permission denied\); allow it, and'),
    (tf.errors.ResourceExhaustedError(None, None, 'a: No space left on device'), 'make room, and'),
    (FileNotFoundError(errno.ENOENT, 'No such file', 'gone/x'), 'has vanished; put it back, and'),
    (error_of_a_save(), 'has vanished; put it back, and'),
  ],
)
def test_what_fails_in_a_folder_names_it(error, said):
  refused = pytest.raises(StorageError, match=f'^--job-dir gone .*{said}')
  with refused, files.naming_errors('--job-dir', 'gone'):
    raise error


def test_a_folder_whose_name_an_error_has_is_not_always_gone():
  """A dry run makes none, and in a cluster a worker may not see it."""
  error = tf.errors.ResourceExhaustedError(None, None, 'OOM on /job:localhost/device:CPU:0')
  with pytest.raises(tf.errors.ResourceExhaustedError), files.naming_errors('--job-dir', 'job'):
    raise error
