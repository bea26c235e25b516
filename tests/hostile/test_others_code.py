"""Sources, networks and callbacks of others that fail in every way, or change the process."""

from harness import ANY_NETWORK, Case, cases, has_result, nothing

TITLE = 'failing code of users'
BEFORE = '10 of 31'
WAS = 'tracebacks, lines of a megabyte, signal 11, no end'
NOW = (
  'one line that names the source and the example, code 1 (2 before anything is written), and an '
  'end: ten seconds after the result where a thread is left'
)

_OWN = """
import ctypes, gc, locale, logging, os, random, signal, subprocess, sys, threading, time, warnings
import numpy as np

class Bare(BaseException):
  pass

class Mute(Exception):
  def __str__(self):
    raise RuntimeError('no words')

class Wrong(Exception):
  def __str__(self):
    return 5

class Unprintable:
  def __repr__(self):
    raise Bare('no words')

def strike():
  {strike}

def quiet():
  pass

def image():
  return np.zeros([32, 32, 3], np.uint8)

def source():
  {at_first}()
  for number in range(64):
    if number == 20:
      {later}()
    yield image(), number % 10

def network(images, is_training, num_classes):
  import tensorflow as tf
  {in_network}()
  flat = tf.reshape(images, [-1, 3072])
  weights = tf.compat.v1.get_variable('w', [3072, num_classes], flat.dtype)
  return tf.matmul(flat, weights)

def callback(run):
  import cifar10
  {in_make}()
  class Own(cifar10.Callback):
    def on_step_end(self, step):
      {in_step}()
    def on_train_end(self, *arguments):
      {in_end}()
  return Own()

{in_import}()
"""
_SPOTS = {  # Where it strikes: more flags, and the code of a failure.
  'in_import': (('--source', 'own:source', '--examples-per-epoch', '64'), 2),
  'at_first': (('--source', 'own:source', '--examples-per-epoch', '64'), 2),
  'later': (('--source', 'own:source', '--examples-per-epoch', '64'), 1),
  'in_network': (('--network', 'own:network'), 2),
  'in_make': (('--callback', 'own:callback'), 1),
  'in_step': (('--callback', 'own:callback'), 1),
  'in_end': (('--callback', 'own:callback'), 1),
}
_NAMES = {'--source': 'own:s', '--network': 'own:network', '--callback': 'own:callback'}
_FAILURES = {
  'exit': 'sys.exit()',
  'exit with 0': 'sys.exit(0)',
  'exit with text': "sys.exit('enough')",
  'bare': "raise Bare('enough')",
  'interrupt': 'raise KeyboardInterrupt',
  'generator exit': 'raise GeneratorExit',
  'stop iteration': 'raise StopIteration',
  'mute': 'raise Mute()',
  'wrong text': 'raise Wrong()',
  'megabyte': "raise ValueError('x' * 10**6)",
  'megabyte of lines': "raise ValueError('x\\n' * 10**6)",
  'surrogate': "raise ValueError('\\udc80 \\ud800')",
  'nul': "raise ValueError('a\\0b\\x1b[2Jc')",
  'recursion': 'strike()',
  'memory': 'raise MemoryError()',
  'deep cause': '\n  error = None\n  for number in range(3000):\n    new = ValueError(number)\n'
  '    new.__cause__ = error\n    error = new\n  raise error',
  'argument': 'raise ValueError(Unprintable())',
  'long name': "raise type('E' * 100000, (Exception,), {})('x')",
  'no traceback': "raise ValueError('x').with_traceback(None)",
}
_KEY = ('exit', 'bare', 'mute', 'megabyte', 'surrogate')
_CHANGES = {
  'no environment': 'os.environ.clear()',
  'another folder': "os.chdir('/')",
  'a folder that is gone': "os.makedirs('gone'); os.chdir('gone'); os.rmdir(os.getcwd())",
  'no output': 'sys.stdout = None',
  'output closed': 'sys.stdout.close()',
  'output replaced': 'sys.stdout = open(os.devnull)',
  'descriptor closed': '\n  try:\n    os.close(1)\n  except OSError:\n    pass',
  'no errors': 'sys.stderr = None',
  'errors replaced': 'sys.stderr = open(os.devnull)',
  'prints': "print('hello'); print('{')",
  'prints halfway': "sys.stdout.write('hello')",
  'writes': "os.write(1, b'hello\\n')",
  'C prints': "ctypes.CDLL(None).printf(b'hello\\n')",
  'a child prints': "subprocess.run(['echo', 'hello'])",
  'a thread': 'threading.Thread(target=time.sleep, args=[1000]).start()',
  'no arguments': 'sys.argv.clear()',
  'no paths': 'sys.path.clear()',
  'warnings': "warnings.simplefilter('error')",
  'no log': 'logging.disable(); logging.getLogger().handlers.clear()',
  'numbers': "np.seterr(all='raise')",
  'no exit': 'import atexit; atexit.register(time.sleep, 1000)',
}


def _own(spot, strike):
  spots = {**dict.fromkeys(_SPOTS, 'quiet'), spot: 'strike'}
  text = _OWN
  for name, function in {**spots, 'strike': strike}.items():
    text = text.replace(f'{{{name}}}', function)
  return text


def _case(kind, spot, strike, codes):
  flags, _ = _SPOTS[spot]
  says = _NAMES[flags[0]] if codes != (0,) else ''
  return Case(
    f'{kind} {spot}',
    ANY_NETWORK if spot == 'in_network' else 'train',
    codes,
    (*flags, '--train-steps', '6'),
    prepare=lambda place: place.write('own.py', _own(spot, strike)),
    says=says,
    check=has_result if codes == (0,) else nothing,
    seconds=60,
  )


CASES = [_case(kind, 'later', strike, (1,)) for kind, strike in _FAILURES.items()]
CASES += [
  _case(kind, spot, _FAILURES[kind], (code,))
  for spot, (_, code) in _SPOTS.items()
  if spot != 'later'
  for kind in _KEY
]
CASES += [_case(kind, 'later', strike, (0,)) for kind, strike in _CHANGES.items()]
CASES += [
  _case(kind, spot, _CHANGES[kind], (0,))
  for spot in ('in_import', 'in_network', 'in_step')
  for kind in (
    'no environment',
    'another folder',
    'output closed',
    'writes',
    'a thread',
    'no arguments',
  )
]


@cases(CASES)
def test_others_code(run_case, case):
  run_case(case)
