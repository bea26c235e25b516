"""Files on the local disk, in TensorFlow's memory and on the local disk by its URL: all alike."""

import io
import os
import tarfile

import pytest
import tensorflow as tf

from cifar10.core import files, lock, remote_files, storage_errors
from cifar10.core.errors import InputError, StorageError


@pytest.fixture(params=['local', 'file://', 'ram://'])
def folder(request, tmp_path):
  """A folder that is there and empty, and no other test's."""
  path = {'local': '', 'file://': 'file://', 'ram://': 'ram:/'}[request.param] + str(tmp_path)
  files.make_folder(path)
  return path


def join(folder, *names):
  return os.path.join(folder, *names)


def names(folder):
  return [os.path.basename(path) for path in files.matching(folder, '*')]


def test_text_comes_back_and_replaces_what_was_there(folder):
  path = join(folder, 'text.txt')
  files.write_text(path, 'a longer text: ä\n')
  files.write_text(path, 'ö\n')
  assert files.read_text(path) == 'ö\n'
  assert files.size(path) == 3
  assert names(folder) == ['text.txt']


def test_a_file_that_fails_while_it_is_written_leaves_the_old_one_and_nothing_else(folder):
  path = join(folder, 'text.txt')
  files.write_text(path, 'old')
  with pytest.raises(ZeroDivisionError), files.writing(path) as file:
    file.write(b'half')
    raise ZeroDivisionError
  assert files.read(path) == b'old'
  assert names(folder) == ['text.txt']


def test_replacing_gives_a_local_name_to_write_to(folder):
  with files.replacing(join(folder, 'new')) as temporary:
    with open(temporary, 'wb') as file:  # As a library with files of its own does.
      file.write(b'content')
    assert not files.exists(join(folder, 'new'))
  assert files.read(join(folder, 'new')) == b'content'
  assert not os.path.exists(temporary)


def test_what_is_there(folder):
  files.make_folder(join(folder, 'a', 'b'))
  files.write_text(join(folder, 'a', 'b', 'model.ckpt-1.index'), 'x')
  files.write_text(join(folder, 'a', 'b', 'model.ckpt-10.index'), 'xx')
  model = join(folder, 'a', 'b', 'model.ckpt-1')
  there = {
    path: (files.exists(path), files.is_named(path), files.is_dir(path), files.is_file(path))
    for path in (folder, join(folder, 'a', 'b'), model, f'{model}.index', join(folder, 'none'))
  }
  assert list(there.values()) == [
    (True, True, True, False),
    (True, True, True, False),
    (False, False, False, False),  # The beginning of two names, and none itself.
    (True, True, False, True),
    (False, False, False, False),
  ]
  assert names(join(folder, 'a', 'b')) == ['model.ckpt-1.index', 'model.ckpt-10.index']
  assert files.matching(join(folder, 'a', 'b'), files.escape('model.ckpt-1') + '.*') == [
    f'{model}.index'
  ]
  assert files.matching(join(folder, 'none'), '*') == []


def test_patterns_take_names_as_they_are(folder):
  odd = join(folder, 'a [1]')
  files.make_folder(odd)
  files.write_text(join(odd, 'b[x].txt'), '')
  assert files.matching(odd, files.escape('b[x]') + '.*') == [join(odd, 'b[x].txt')]


def test_removing_moving_and_copying(folder):
  files.write_text(join(folder, 'one'), '1')
  files.copy(join(folder, 'one'), join(folder, 'two'))
  files.move(join(folder, 'one'), join(folder, 'three'))
  assert names(folder) == ['three', 'two']
  files.remove(join(folder, 'three'))
  assert files.read(join(folder, 'two')) == b'1'
  assert names(folder) == ['two']
  files.make_folder(join(folder, 'sub'))
  files.write_text(join(folder, 'sub', 'x'), 'x')
  files.remove_folder(join(folder, 'sub'))
  assert not files.exists(join(folder, 'sub', 'x'))


def test_what_is_missing_is_named_as_python_does(folder):
  path = join(folder, 'none')
  for look in (files.read, files.size, files.signature, files.remove, files.opened):
    with pytest.raises(FileNotFoundError) as error:
      look(path)
    assert error.value.filename == path


def test_a_file_can_be_read_from_any_place(folder):
  path = join(folder, 'numbers')
  with files.writing(path) as file:
    file.write(bytes(range(256)) * 5000)  # More than is read at a time.
  with files.opened(path) as file:
    assert file.seek(1_000_000) == 1_000_000
    assert file.read(2) == bytes([1_000_000 % 256, 1_000_001 % 256])
    assert file.seek(-1, io.SEEK_END) == 256 * 5000 - 1
    assert file.read() == b'\xff'
    assert file.tell() == 256 * 5000
    file.seek(0)
    assert file.read(3) == b'\0\1\2'


def test_pythons_own_libraries_read_what_is_opened(folder):
  path = join(folder, 'x.tar.gz')
  with files.writing(path) as file, tarfile.open(fileobj=file, mode='w:gz') as tar:
    member = tarfile.TarInfo('name')
    member.size = 7
    tar.addfile(member, io.BytesIO(b'content'))
  with files.opened(path) as file, tarfile.open(fileobj=file, mode='r:*') as tar:
    assert tar.extractfile('name').read() == b'content'


def test_overwriting_keeps_apart_what_is_new(folder):
  path = join(folder, 'claim')
  with pytest.raises(FileNotFoundError):
    files.overwrite(path, b'1', is_new=False)
  files.overwrite(path, b'1', is_new=True)
  with pytest.raises(FileExistsError):
    files.overwrite(path, b'2', is_new=True)
  files.overwrite(path, b'3', is_new=False)
  assert files.read(path) == b'3'


def test_what_a_killed_process_left_is_removed(folder):
  kept = ['config.json', 'config.json.a.17.tmp', 'config.json.notes.tmp', 'other.json.17.tmp']
  for name in ('config.json.17.tmp', *kept):
    files.overwrite(join(folder, name), b'', is_new=True)
  files.remove_unfinished(join(folder, 'config.json'))
  assert names(folder) == kept


def test_paths():
  assert files.absolute('gs://b/job/') == files.absolute('gs://b/job') == 'gs://b/job'
  assert files.absolute('ram://') == 'ram://'
  assert files.absolute('x') == os.path.join(os.getcwd(), 'x')
  assert files.is_inside('gs://b/job/model', 'gs://b/job/')
  assert not files.is_inside('gs://b/job2/model', 'gs://b/job')
  assert not files.is_inside('gs://b/job', '.')
  assert files.is_inside('x/y', '.')
  assert not files.is_url('./gs://b')
  assert not files.is_url('://b')


def test_a_filesystem_that_nobody_knows_is_refused_with_the_remedy():
  for look in (files.exists, files.read, files.make_folder, files.is_dir):
    with pytest.raises(InputError, match=r'foo:// is no filesystem .*pip install tensorflow-io'):
      look('foo://bucket/job')


class Unreachable:
  """TensorFlow's files while a connection is down: it then says of folders that there are none."""

  isdir = staticmethod(lambda path: False)

  def listdir(self, path):
    raise tf.errors.NotFoundError(None, None, f'Could not find directory {path}')

  def stat(self, path):
    raise tf.errors.UnavailableError(None, None, f'no route to {path}\nmore')

  exists = stat


def test_a_place_that_cannot_be_reached_is_not_taken_for_an_empty_one(monkeypatch):
  """A job would begin anew there, and a lock hold nobody up."""
  monkeypatch.setattr(remote_files, '_of_scheme', lambda name: Unreachable())
  for look in (files.exists, files.is_dir, files.is_file, lambda path: files.matching(path, '*')):
    with pytest.raises(OSError, match='no route to gs://b/job') as error:
      look('gs://b/job')
    assert not isinstance(error.value, FileNotFoundError)
    assert error.value.strerror == 'no route to gs://b/job'


def test_a_lock_holds_behind_a_url_too(folder):
  with lock.Lock(folder, 'taken by {holder}'):
    with pytest.raises(InputError, match=f'taken by process {os.getpid()} on '):
      lock.Lock(folder, 'taken by {holder}').__enter__()
    assert lock.holder(folder)['pid'] == os.getpid()
    assert len(names(folder)) == 1
  assert names(folder) == []


def test_a_claim_from_elsewhere_that_no_longer_beats_is_taken_over(folder, monkeypatch):
  claim = '{"host": "other", "pid": 1, "state": "holds"}'
  files.write_text(join(folder, 'claim-other-1-0123abcd.json'), claim)
  monkeypatch.setattr(lock, '_DEAD_SECONDS', 0.2)
  with lock.Lock(folder, 'taken by {holder}'):
    assert len(names(folder)) == 1
    assert 'claim-other-1-0123abcd.json' not in names(folder)


def test_a_filesystem_that_fails_is_named_and_has_not_vanished():
  said = r'^--job-dir gs://b/job fails \(.*no route.*gs://b/job/x.*\); mend it, and the same'
  with pytest.raises(StorageError, match=said), storage_errors.named('--job-dir', 'gs://b/job'):
    raise OSError(5, 'no route', 'gs://b/job/x')
  with (
    pytest.raises(ValueError, match='gs://b/job'),
    storage_errors.named('--job-dir', 'gs://b/job'),
  ):
    raise ValueError('a mistake of the program, that names gs://b/job')


@pytest.mark.parametrize('make_folder', [files.make_folder, tf.io.gfile.makedirs])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, make_folder):
  """TensorFlow has the path in its text alone."""
  job, taken = str(tmp_path), str(tmp_path / 'eval')
  (tmp_path / 'eval').touch()
  said = r'^--job-dir .* has something in the way \(.*\); move it away, and the same'
  with pytest.raises(StorageError, match=said), storage_errors.named('--job-dir', job):
    make_folder(taken)
  with (
    pytest.raises((OSError, tf.errors.OpError)),
    storage_errors.named('--job-dir', f'{job}/other'),
  ):
    make_folder(taken)
