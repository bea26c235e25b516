"""Names of files and folders that mean something to somebody, or that are no text."""

import os

from harness import COMMANDS, Case, cases

TITLE = 'path names'
BEFORE = '16 of 27'
WAS = (
  'a job dir that ends in `//` trained and could not be read; an empty `--out` was written; names '
  'that are no UTF-8 ended in tracebacks or were called damaged'
)
NOW = 'works, or is refused in one line'

MUST = 'runs/lr[0.1]*?\\x//'  # What issue 35 asks for by name.
NAMES = {
  'all of patterns': MUST,
  'brackets': 'lr[0.1]',
  'two slashes': 'jo//b///',
  'dots': './a/../b/.',
  'line breaks': 'a\nb\r\x1b[31m',
  'quotes': '\'a" $(b) `c`',
  'blanks': ' a ',
  'dollars': '$HOME{x}%s{0}%d',
  'other letters': 'ünï-\u2028\U0001f600',
  'a colon': 'x:/a',
  '200 letters': 'x' * 200,
}
USES = ('train', 'resume', 'evaluate', 'predict', 'list', 'dump', 'dump checkpoint', 'average')
USES += ('table', 'report', 'control', 'export saved_model', 'export onnx', 'export keras')
BYTES = 'b\udcff'


def renamed(name):
  """Gives the job this name, as the shell would give it to the program."""

  def prepare(place):
    os.makedirs(os.path.dirname(place.path(name.rstrip('/'))), exist_ok=True)
    os.rename(os.fsencode(place.path('job')), os.fsencode(os.path.normpath(place.path(name))))

  return prepare


def words(command, name):
  """The command with this name for the job, new or old, and for what it writes."""
  new = {'job': name, 'new': name, 'dumped.npz': f'{name}/all.npz', 'dumped': f'{name}/all'}
  new |= {'mean.npz': f'{name}/mean.npz', 'report.html': f'{name}/report.html'}
  given = [new.get(word, word) for word in COMMANDS[command]]
  return given if command != 'control' else [*given[:1], '--', *given[1:]]


def is_in_its_place(name):
  """What was there before is there, and nothing has another name that fits."""

  def check(place, ended):
    assert set(os.listdir(place.folder)) <= {
      *BEFORE_IT,
      name.strip('./').split('/')[0],
      *place_of(name),
    }

  return check


BEFORE_IT = ('data', 'job', 'grey.png', 'out', 'err')


def place_of(name):
  """The first folder of a path."""
  return os.path.normpath(name).split('/')[:1]


def used(what, name, command):
  codes = (1,) if command == 'control' else (0,)  # Nobody trains there.
  new = command == 'train'
  return Case(
    f'{command} in {what}',
    words(command, name),
    codes,
    prepare=(lambda place: None) if new else renamed(name),
    check=is_in_its_place(name),
    kept=('data', 'grey.png', *([] if new else [os.path.normpath(name) + '/model.ckpt-8.index'])),
  )


def refused(name, given):
  return Case(name, given, (2,), check=leaves_nothing)


def leaves_nothing(place, ended):
  left = set(os.listdir(os.fsencode(place.folder))) - {os.fsencode(name) for name in BEFORE_IT}
  assert left <= {b'b\xff'}, left
  assert os.listdir(os.fsencode(place.path('')) + b'b\xff') == [] if b'b\xff' in left else True


EMPTY = {
  'dump --out': ['cifar10.checkpoint', 'dump', 'job', '--out', ''],
  'average --out': [*COMMANDS['average'][:4], '', *COMMANDS['average'][5:]],
  'report --out': ['cifar10.report', 'job', '--out', ''],
  'list': ['cifar10.checkpoint', 'list', ''],
  'report': ['cifar10.report', '', '--table'],
  'train --job-dir': [word if word != 'new' else '' for word in COMMANDS['train']],
  'train --data-dir': [word if word != 'data' else '' for word in COMMANDS['train']],
  'dry run --job-dir': [word if word != 'new' else '' for word in COMMANDS['dry run']],
  'evaluate --job-dir': [word if word != 'job' else '' for word in COMMANDS['evaluate']],
  'generate --data-dir': [word if word != 'made' else '' for word in COMMANDS['generate']],
  'generate --images': [*COMMANDS['generate'][:3], '--images', ''],
}
NO_TEXT = {
  'train --job-dir': [word if word != 'new' else BYTES for word in COMMANDS['train']],
  'dry run --job-dir': [word if word != 'new' else BYTES for word in COMMANDS['dry run']],
  'train --data-dir': [word if word != 'data' else BYTES for word in COMMANDS['train']],
  'evaluate --job-dir': [word if word != 'job' else BYTES for word in COMMANDS['evaluate']],
  'evaluate --checkpoint': [*COMMANDS['evaluate'], '--checkpoint', BYTES],
  'predict --job-dir': [word if word != 'job' else BYTES for word in COMMANDS['predict']],
  'export --job-dir': [word if word != 'job' else BYTES for word in COMMANDS['export keras']],
  'train --warm-start-from': [*COMMANDS['train'], '--warm-start-from', BYTES],
  'generate --data-dir': [word if word != 'made' else BYTES for word in COMMANDS['generate']],
  'list': [word if word != 'job' else BYTES for word in COMMANDS['list']],
  'dump --out': [word if word != 'dumped' else BYTES for word in COMMANDS['dump checkpoint']],
  'table': [word if word != 'job' else BYTES for word in COMMANDS['table']],
}
CASES = [
  *(
    used(what, NAMES[what], command)
    for what in ('all of patterns', 'two slashes')
    for command in USES
  ),
  *(
    used(what, name, command)
    for what, name in NAMES.items()
    if what not in ('all of patterns', 'two slashes')
    for command in ('train', 'resume', 'evaluate', 'export saved_model', 'dump checkpoint')
  ),
  *(refused(f'empty {name}', given) for name, given in EMPTY.items()),
  *(refused(f'no text for {name}', given) for name, given in NO_TEXT.items()),
  *(
    Case(
      f'no text for {name}, which is there',
      NO_TEXT[name],
      (2,),
      prepare=renamed(BYTES),
      kept=(BYTES,),
    )
    for name in ('train --job-dir', 'evaluate --job-dir', 'list', 'table', 'predict --job-dir')
  ),
  Case('control of no text', ['cifar10.control', BYTES, 'save'], (1, 2)),
  Case('control of nothing', ['cifar10.control', '', 'save'], (1, 2)),
  Case('predict of no text', [*COMMANDS['predict'][:-1], BYTES], (1, 2)),
  Case(
    'predict of an image of no text',
    [*COMMANDS['predict'][:-1], BYTES + '.png'],
    (0,),
    prepare=lambda place: os.rename(
      place.path('grey.png'), os.fsencode(place.path(BYTES + '.png'))
    ),
    kept=('data',),
  ),
]


@cases(CASES)
def test_odd_path(run_case, case):
  run_case(case)
