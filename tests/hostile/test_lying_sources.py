"""What --warm-start-from and `checkpoint` take for variables, and are not: .npz, .npy, .keras."""

import io
import os
import struct
import zipfile

import numpy as np
from harness import COMMANDS, Case, cases

TITLE = 'corrupted files of variables'
BEFORE = '14 of 22'
WAS = 'MemoryError tracebacks after seconds, tracebacks of zip, zlib and numpy'
NOW = 'headers are read first, values when they are wanted; a fault of any kind is one line'

KERNEL = 'resnet/fully_connected/kernel'


def header(shape, dtype="'<f4'", fortran='False', version=b'\1\0'):
  """The beginning of an array's file, which claims this of what comes."""
  text = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
  text += b' ' * (-(len(text) + 11) % 64) + b'\n'
  size = '<H' if version < b'\2\0' else '<I'
  return b'\x93NUMPY' + version + struct.pack(size, len(text)) + text


def zipped(name, content, **more):
  def prepare(place):
    with zipfile.ZipFile(place.path('lie.npz'), 'w', **more) as archive:
      archive.writestr(name, content)

  return prepare


def array(content, name=f'{KERNEL}.npy', **more):
  return zipped(name, content, **more)


def written(content):
  return lambda place: place.write('lie.npz', content)


def of_arrays(**values):
  def prepare(place):
    np.savez(place.path('lie.npz'), **values)

  return prepare


def bomb(place):
  """30 GB of noughts in 30 MB would take a while to write: 3 GB, of which memory has no need."""
  with (
    zipfile.ZipFile(place.path('lie.npz'), 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    archive.open(f'{KERNEL}.npy', 'w', force_zip64=True) as file,
  ):
    file.write(header((750_000_000,)))
    for _ in range(300):
      file.write(bytes(10_000_000))


def changed(change):
  """An .npz file as numpy writes it, its bytes changed."""

  def prepare(place):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{KERNEL: np.ones([64, 10], np.float32)})
    place.write('lie.npz', bytes(change(bytearray(buffer.getvalue()))))

  return prepare


def put(at, content):
  def change(whole):
    whole[at : at + len(content)] = content
    return whole

  return change


def directory(offset, content):
  """In the zip's list of members, which readers believe."""

  def change(whole):
    return put(whole.rindex(b'PK\1\2') + offset, content)(whole)

  return change


FLOATS = np.ones([64, 10], np.float32).tobytes()
LIES = {
  'claims 30 GB': array(header((7_500_000_000,)) + FLOATS),
  'claims 30 GB in rows': array(header((10**6, 7500)) + FLOATS),
  'claims 2 to the 70': array(header((2**35, 2**35)) + FLOATS),
  'claims the right shape and has nothing': array(header((64, 10))),
  'claims a negative shape': array(header((-64, 10)) + FLOATS),
  'claims a shape of text': array(header("('a',)") + FLOATS),
  'claims a shape of floats': array(header((64.0, 10.0)) + FLOATS),
  'claims a shape of truths': array(header((True, True)) + FLOATS[:4]),
  'claims objects': array(header((64, 10), "'|O'") + FLOATS),
  'claims text': array(header((64, 10), "'<U1'") + FLOATS),
  'claims text of 30 GB': array(header((1,), "'<U7500000000'") + FLOATS),
  'claims fields': array(header((64, 10), "[('a', '<f4')]") + FLOATS),
  'claims nothing of a type': array(header((64, 10), "''") + FLOATS),
  'claims a type of nonsense': array(header((64, 10), "'<q99'") + FLOATS),
  'claims dates': array(header((64, 10), "'<M8[ns]'") + FLOATS * 2),
  'claims long doubles': array(header((64, 10), "'<f16'") + FLOATS * 4),
  'claims version 9': array(header((64, 10), version=b'\x09\0') + FLOATS),
  'claims 40 dimensions': array(header((1,) * 40) + FLOATS[:4]),
  'claims 300 dimensions': array(header((1,) * 300) + FLOATS[:4]),
  'has a header of code': array(header('(__import__("os").abort(),)') + FLOATS),
  'has a header of brackets': array(header('(' * 4000) + FLOATS),
  'has a header of 4 GB': array(b'\x93NUMPY\2\0\xff\xff\xff\xff' + FLOATS),
  'has half a header': array(header((64, 10))[:30]),
  'has no header': array(FLOATS),
  'has an empty member': array(b''),
  'has no arrays': zipped('a.txt', 'text'),
  'has no members': lambda place: zipfile.ZipFile(place.path('lie.npz'), 'w').close(),
  'is one array': written(header((64, 10)) + FLOATS),
  'is one array that claims 30 GB': written(header((7_500_000_000,)) + FLOATS),
  'is a pickle': written(b'\x80\4cos\nabort\n)R.'),
  'is empty': written(b''),
  'is text': written(b'text\n'),
  'is zeros': written(bytes(5000)),
  'is half a zip': changed(lambda whole: whole[: len(whole) // 2]),
  'has a member of another length': changed(directory(24, struct.pack('<I', 3_000_000_000))),
  'has a packed member of another length': changed(directory(20, struct.pack('<I', 3_000_000_000))),
  'has a member elsewhere': changed(directory(42, struct.pack('<I', 3_000_000_000))),
  'is locked': changed(directory(8, b'\1\0')),
  'is packed as nobody knows': changed(directory(10, b'\x63\0')),
  'is said to be bzip2': changed(directory(10, b'\x0c\0')),
  'is said to be lzma': changed(directory(10, b'\x0e\0')),
  'has a broken stream': changed(put(70, b'\xff' * 30)),
  'has another checksum': changed(directory(16, b'\0\0\0\0')),
  'is a bomb of 3 GB': bomb,
  'has a step of text': of_arrays(global_step='eight', **{KERNEL: np.ones([64, 10])}),
  'has a step of a vector': of_arrays(global_step=np.arange(3), **{KERNEL: np.ones([64, 10])}),
  'has a step of NaN': of_arrays(global_step=np.float64('nan'), **{KERNEL: np.ones([64, 10])}),
  'has a step of a float': of_arrays(global_step=np.float64(1e30), **{KERNEL: np.ones([64, 10])}),
  'has names of nonsense': of_arrays(**{'\n\x1b[31m/x': np.ones(3), 'z' * 9000 + '/y': np.ones(3)}),
  'is a Keras file of nonsense': zipped('model.weights.h5', b'\x89HDF\r\n\x1a\n' + b'\xff' * 100),
  'is a Keras file of a config': zipped('config.json', '{"class_name": "Lambda"}'),
}
_HARMLESS = (  # What is read is right all the same, or there was nothing to read.
  'has a member of another length',
  'has a packed member of another length',
  'has no members',
  'has names of nonsense',
  'is a bomb of 3 GB',
)
WARM = [*COMMANDS['train'], '--warm-start-from', 'lie.npz']
VERBS = {
  'list': ['cifar10.checkpoint', 'list', 'lie.npz'],
  'dump': ['cifar10.checkpoint', 'dump', 'lie.npz', '--out', 'dumped.npz'],
  'average': [*COMMANDS['average'][:2], 'lie.npz', *COMMANDS['average'][3:]],
}


def gone(place, ended):
  """A refused training leaves no job."""
  assert not ended.code or not os.path.exists(place.path('new', 'config.json'))


def lied(name, verb, words, lie):
  harmless = name in _HARMLESS or verb == 'list'  # Which shows names and shapes.
  return Case(
    f'{verb} what {name}',
    words,
    (0, 2) if harmless else (2,),
    prepare=lie,
    seconds=30,
    limits={'RLIMIT_AS': 8 << 30},
    check=gone,
  )


CASES = [
  *(
    lied(name, 'warm start from', WARM, lie)
    for name, lie in LIES.items()
    if 'step' not in name  # Which a new job doesn't take.
  ),
  *(
    lied(name, verb, VERBS[verb], lie)
    for number, (name, lie) in enumerate(LIES.items())
    for verb in ('list', ('dump', 'average')[number % 2])
  ),
]


@cases(CASES)
def test_lying_source(run_case, case):
  run_case(case)
