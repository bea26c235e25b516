"""`ulimit -f`, full disks, and no folder for temporary files, under every writer."""

from harness import COMMANDS, Case, cases, has_result, nothing

TITLE = 'Limits of files'
BEFORE = '5 of 32'
WAS = 'tracebacks, and no result of an evaluation'
NOW = (
  'one line, code 1; an evaluation is printed all the same; without a folder for temporary files '
  'the line names TMPDIR'
)

_WRITERS = (
  'generate',
  'train',
  'train and evaluate',
  'resume',
  'dry run',
  'export saved_model',
  'export onnx',
  'export keras',
  'dump',
  'dump checkpoint',
  'average',
  'report',
)
_READERS = ('evaluate', 'predict', 'list', 'table')

CASES = [
  Case(
    f'{command} at most {kib} KiB a file',
    command,
    (0, 1),
    limits={'RLIMIT_FSIZE': kib << 10},
    fresh=command in ('train', 'generate'),
    check=check,
  )
  for commands, sizes, check in ((_WRITERS, (0, 1, 100), nothing), (_READERS, (1,), has_result))
  for command in commands
  for kib in sizes
]
_PATHS = ('data', 'job', 'new', 'made', 'dumped.npz', 'mean.npz', 'report.html', 'grey.png')
_NO_FOLDER = """unshare --mount sh -c '
  mount --bind . /mnt && for each in /tmp /var/tmp /usr/tmp; do
    [ ! -d $each ] || { mount --bind $each $each && mount -o remount,ro,bind $each; } || exit 9
  done; cd /proc && exec "$@"' sh "$@"; exit $?"""
_FULL = """unshare --mount sh -c '
  mkdir -p full && mount -t tmpfs -o size=%dk tmpfs full && cp -r job full/ && cd full &&
  { dd if=/dev/zero of=filler bs=1k 2>/dev/null; ln -s ../data ../grey.png .; true; } &&
  exec "$@"' sh "$@"; exit $?"""
CASES += [
  Case(
    f'{command} without a folder for temporary files',
    [f'/mnt/{word}' if word in _PATHS else word for word in COMMANDS[command]],
    (1,),  # TensorFlow cannot be imported without one.
    fresh=True,
    shell=_NO_FOLDER,
    says='TMPDIR',
  )
  for command in (
    'generate',
    'train',
    'dry run',
    'evaluate',
    'export saved_model',
    'export onnx',
    'export keras',
    'report',
    'average',
  )
]
CASES += [
  Case(f'{command} on a full disk', command, codes, fresh=True, shell=_FULL % 2000, check=check)
  for command, codes, check in (
    ('generate', (1, 2), nothing),
    ('train', (1,), nothing),
    ('resume', (1,), nothing),
    ('evaluate', (0, 1), has_result),
    ('predict', (0,), has_result),
    ('export saved_model', (1,), nothing),
    ('export onnx', (1,), nothing),
    ('export keras', (1,), nothing),
    ('dump', (1,), nothing),
    ('dump checkpoint', (1,), nothing),
    ('average', (1,), nothing),
    ('report', (1,), nothing),
    ('list', (0,), has_result),
    ('table', (0,), has_result),
    ('dry run', (0,), has_result),
  )
]


@cases(CASES)
def test_limits_of_files(run_case, case):
  run_case(case)
