"""Values of flags: long ones, line breaks and control characters, numbers below their least."""

from harness import COMMANDS, Case, cases

TITLE = "flags' values"
BEFORE = '15 of 24'
WAS = 'errors of several lines, of 40,000 characters, and with control characters; negative rates'
NOW = 'one function shortens and escapes what any error repeats; rates are checked'

LONG = 'x' * 40_000
LINES = 'a\nb\r\x1b[31mc\x07\x85d\u2028e'
BYTES = 'a\udcffb'


def ends_in_plain_text(place, ended):
  """Nothing in what was said steers a terminal."""
  assert not [letter for letter in ended.said.replace('\n', '') if not letter.isprintable()]


def refused(name, command, *more, codes=(2,)):
  words = COMMANDS[command] if isinstance(command, str) else command
  return Case(name, words, codes, more, seconds=30, check=ends_in_plain_text)


FLAGS = {
  '--learning-rate': 'train',
  '--lr-values': 'train',
  '--lr-boundaries-epochs': 'train',
  '--widths': 'train',
  '--train-on': 'train',
  '--network': 'train',
  '--recipe': 'train',
  '--nesterov': 'train',
  '--num-layers': 'train',
  '--source': 'train',
  '--callback': 'train',
  '--warm-start-from': 'train',
  '--profile-steps': 'train',
  '--mode': 'train',
  '--data-dir': 'train',
  '--subset': 'evaluate',
  '--checkpoint': 'evaluate',
  '--format': 'evaluate',
  '--nonsense': 'evaluate',
}
OTHERS = {
  'generate --synthetic': ['generate_cifar10_tfrecords.py', '--data-dir', 'made', '--synthetic'],
  'generate --images': ['generate_cifar10_tfrecords.py', '--data-dir', 'made', '--images'],
  'generate --split': ['generate_cifar10_tfrecords.py', '--data-dir', 'made', '--split'],
  'list': ['cifar10.checkpoint', 'list'],
  'a verb': ['cifar10.checkpoint'],
  'report': ['cifar10.report', '--table'],
  'control': ['cifar10.control', 'job'],
  'control of': ['cifar10.control'],
  'cluster --workers': ['cifar10.local_cluster', '--workers'],
}
VALUES = {'40,000 letters': LONG, 'line breaks': LINES, 'no UTF-8': BYTES}
NEGATIVE = {
  '--lr-values': '-1,0.1,0.01,0.002',
  '--lr-values, the last': '1,0.1,0.01,-0.002',
  '--lr-boundaries-steps': '-1,2,3',
  '--lr-triangle': '-1,2',
  '--learning-rate': '-0.1',
  '--weight-decay': '-1',
  '--num-layers': '-8',
}
CASES = [
  *(
    refused(f'{flag} of {what}', command, f'{flag}={value}')
    for flag, command in FLAGS.items()
    for what, value in VALUES.items()
  ),
  *(
    refused(
      f'{name} of {what}', words, value, *(['save'] if name == 'control of' else []), codes=(1, 2)
    )
    for name, words in OTHERS.items()
    for what, value in VALUES.items()
  ),
  *(
    refused(f'below 0: {flag}', 'train', f'{flag.partition(",")[0]}={value}')
    for flag, value in NEGATIVE.items()
  ),
]


@cases(CASES)
def test_hostile_flag(run_case, case):
  run_case(case)
