"""Standard streams that are closed or full, and what else is printed there."""

from harness import Case, cases, has_result, nothing

TITLE = 'Standard streams'
BEFORE = '28 of 61'
WAS = 'tracebacks where one is closed; what others print stands among the results'
NOW = (
  'standard output has results alone: file descriptor 1 is standard error for all others, and a '
  'closed stream is as good as /dev/null'
)

_FRESH = ('train', 'evaluate', 'generate', 'list', 'control')
_STREAMS = {
  'output closed': (None, 'err'),
  'error closed': ('out', None),
  'both closed': (None, None),
  'output full': ('/dev/full', 'err'),
  'error full': ('out', '/dev/full'),
  'both full': ('/dev/full', '/dev/full'),
}


def _codes(command, stdout):
  if command == 'control':  # Nobody trains.
    return (1,)
  return (1,) if stdout == '/dev/full' else (0,)


CASES = [
  Case(
    f'{command} {name}',
    command,
    _codes(command, stdout),
    stdout=stdout,
    stderr=stderr,
    fresh=command in _FRESH,
    check=has_result if stdout == 'out' and command != 'control' else nothing,
  )
  for name, (stdout, stderr) in _STREAMS.items()
  for command in (*_FRESH, 'dry run', 'predict', 'export saved_model', 'dump', 'table')
  if command in _FRESH or name in ('both closed', 'output full', 'error full')
]
CASES += [
  Case(f'{flag} {name}', ['cifar10_main.py', flag], codes, stdout=stdout, stderr=stderr, fresh=True)
  for flag in ('--version', '--help', '--list-recipes')
  for name, codes, stdout, stderr in (
    ('output closed', (0,), None, 'err'),
    ('output full', (1,), '/dev/full', 'err'),
    ('error closed', (0,), 'out', None),
  )
  if flag == '--version' or stdout != 'out'
]
CASES += [
  Case('input closed', 'evaluate', (0,), shell='exec <&-', fresh=True, check=has_result),
  Case('all closed', 'train', (0,), shell='exec <&- >&- 2>&-', fresh=True),
  Case(
    'nothing before the mistake', ['cifar10_main.py', '--nonsense'], (2,), stdout=None, fresh=True
  ),
  Case(
    'a mistake that nobody hears', ['cifar10_main.py', '--nonsense'], (2,), stderr=None, fresh=True
  ),
  *(
    Case(
      f'C++ prints while {command}', command, (0,), ('--log-device-placement',), check=has_result
    )
    for command in ('train', 'train and evaluate', 'evaluate', 'predict', 'dry run')
  ),
]


@cases(CASES)
def test_streams(run_case, case):
  run_case(case)
