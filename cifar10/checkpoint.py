"""Lists, dumps and averages checkpoints.

  python -m cifar10.checkpoint list PATH
  python -m cifar10.checkpoint dump PATH --out FILE
  python -m cifar10.checkpoint average PATH PATH... --job-dir JOB --data-dir D --out FILE

A PATH is a job dir (its latest checkpoint), its best/, a checkpoint or an .npz file. `list` shows
names, shapes and sizes. `dump` writes the variables that inference needs, without the optimizer's.
`average` writes the mean of several checkpoints, with batch norm's moving averages recomputed over
the training images. A FILE that ends in .npz has numpy arrays; any other is a checkpoint for
`cifar10_main.py --checkpoint FILE`.
"""

import functools

from cifar10.core import cli, files, logs, start_tensorflow


def main() -> None:
  """Runs the command `list`, `dump` or `average`, and prints one JSON object."""
  parser = cli.OneLineParser(description=__doc__)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='list|dump|average')
  listing = verbs.add_parser('list', help='list the variables')
  path_help = 'a job dir, its best/, a checkpoint, an .npz file, or an included network'
  listing.add_argument('path', type=cli.path, metavar='PATH', help=path_help)
  dump = verbs.add_parser('dump', help='write what inference needs')
  dump.add_argument('path', type=cli.path, metavar='PATH', help=path_help)
  dump.add_argument('--use-ema', action='store_true', help='write the averages of --ema-decay')
  average = verbs.add_parser('average', help='write the mean of several checkpoints')
  average.add_argument('paths', type=cli.path, nargs='+', metavar='PATH', help=path_help)
  average.add_argument('--job-dir', required=True, help='a job with this network')
  average.add_argument('--data-dir', required=True, help='data dir with the training images')
  for verb in (dump, average):
    verb.add_argument('--out', required=True, metavar='FILE', help='file to write; must not exist')
  command = parser.parse_args()
  start_tensorflow.start()  # So late that --help and errors do not wait.
  from cifar10.training import checkpoint_tool as tool  # noqa: PLC0415

  logs.set_up()
  tools = {'list': tool.list_variables, 'dump': tool.dump, 'average': tool.average}
  cli.print_result(files.json_text(tools[command.verb](command)))


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
