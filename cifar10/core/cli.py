"""The parser of all commands, their names in messages, signals, --version, --print-completion.

A command can be started as a file of the checkout, `python cifar10_main.py`, or as the script that
`pip install .` makes of it, `cifar10-train`. Messages name the files; `as_typed` replaces these by
the scripts' names for users of the scripts.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import cifar10
from cifar10.core.logs import one_line, print_line

# How a command is started from a checkout, and the script of pyproject.toml.
SCRIPTS = {
  'generate_cifar10_tfrecords.py': 'cifar10-generate',
  'cifar10_main.py': 'cifar10-train',
  '-m cifar10.local_cluster': 'cifar10-cluster',
  '-m cifar10.report': 'cifar10-report',
  '-m cifar10.control': 'cifar10-control',
  '-m cifar10.checkpoint': 'cifar10-checkpoint',
}

_IN_TEXT = re.compile(rf'(?<![\w./-])(?:python )?({"|".join(map(re.escape, SCRIPTS))})\b')
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(cifar10.__file__)))


def typed_name() -> str:
  """Returns the command as started: 'cifar10-train', 'cifar10_main.py', 'python -m cifar10.report'.

  argparse itself distinguishes `python -m` from a file only from Python 3.14 on.
  """
  spec = getattr(sys.modules['__main__'], '__spec__', None)
  [path] = sys.argv[:1] or ['']  # A user's code may have taken it.
  if spec is not None and spec.origin == path:
    return f'python -m {spec.name}'
  return os.path.basename(path)


def as_typed(text: str) -> str:
  """Returns a message that names files with the scripts' names if the user has these alone."""
  has_files = os.path.exists(os.path.join(_ROOT, 'pyproject.toml'))
  if has_files and typed_name() not in SCRIPTS.values():
    return text
  return _IN_TEXT.sub(lambda match: SCRIPTS[match[1]], text)


def version() -> str:
  """Returns '0.1.0 (TensorFlow 2.15.1, Python 3.11.7)', without importing TensorFlow."""
  try:
    tensorflow = importlib.metadata.version('tensorflow')
  except importlib.metadata.PackageNotFoundError:
    tensorflow = 'not installed'
  return f'{cifar10.__version__} (TensorFlow {tensorflow}, Python {platform.python_version()})'


def _print_completion(parser: argparse.ArgumentParser, shell: str) -> NoReturn:
  """Carries out --print-completion."""
  if parser.prog not in SCRIPTS.values():
    scripts = ', '.join(SCRIPTS.values())
    parser.error(f'shells complete {scripts}, not {parser.prog}; run pip install . for them')
  try:
    import shtab  # noqa: PLC0415
  except ImportError:
    parser.error('--print-completion needs shtab, which is not there; run pip install shtab')
  _name_paths(parser, {'FOLDER': shtab.DIRECTORY, 'JOB': shtab.DIRECTORY, 'FILE': shtab.FILE})
  script = shtab.complete(parser, shell)
  # Where bash has nothing to say, as after --, it offers files, as it does without a completion.
  print_line(script.replace('complete -o bashdefault ', 'complete -o bashdefault -o default '))
  parser.exit()


def _name_paths(parser: argparse.ArgumentParser, kinds: dict[str, Any]) -> None:
  """Tells shtab which arguments are paths, by their metavars, also those of sub-commands."""
  for action in parser._actions:
    if isinstance(action, argparse._SubParsersAction):
      for each in action.choices.values():
        _name_paths(each, kinds)
    elif action.nargs == '?':  # zsh would take the next word for its value.
      action.nargs = 0
    elif action.dest.endswith('_dir'):
      action.complete = kinds['FOLDER']  # type: ignore[attr-defined]
    elif action.metavar in kinds or action.metavar == 'PATH' or action.dest == 'checkpoint':
      kind = kinds.get(str(action.metavar), kinds['FILE'])
      action.complete = kind  # type: ignore[attr-defined]


class _Common(argparse.Action):
  """--version and --print-completion."""

  def __call__(
    self, parser: argparse.ArgumentParser, namespace: Any, shell: Any, option_string: Any = None
  ) -> NoReturn:
    if self.dest == 'version':
      print_line(f'{parser.prog} {version()}')
      parser.exit()
    _print_completion(parser, shell)


def path(text: str) -> str:
  """The type of a path that must be given."""
  if not text:
    raise argparse.ArgumentTypeError('it is empty; give a path')
  return text


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
  """A context that SIGTERM and SIGHUP leave as Ctrl-C does: what is half written is removed."""
  heard: list[int] = []

  def end(number: int, frame: Any) -> NoReturn:
    for each in ours:  # `timeout` sends two, and the second may come later.
      signal.signal(each, signal.SIG_IGN)
    heard.append(number)
    raise KeyboardInterrupt

  numbers = (signal.SIGTERM, signal.SIGHUP)
  is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # As behind `nohup`.
  ours = numbers[:1] if is_ignored else numbers
  before = {number: signal.signal(number, end) for number in ours}
  try:
    yield
  except KeyboardInterrupt:
    if not heard:
      raise
    print(f'ended by {signal.Signals(heard[0]).name}', file=sys.stderr)
    raise SystemExit(128 + heard[0]) from None
  finally:  # A handler of C code, which Python cannot restore, is None.
    for number, handler in before.items():
      signal.signal(number, handler or signal.SIG_DFL)


class OneLineParser(argparse.ArgumentParser):
  """An argument parser that fails like everything else, without printing its usage first.

  It shows the command's name as the user typed it, and has the flags that all commands share.
  """

  def __init__(self, prog: str | None = None, **settings: Any):
    settings.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
    super().__init__(prog or typed_name(), **settings)
    common: dict[str, Any] = {'action': _Common, 'default': argparse.SUPPRESS}
    self.add_argument(
      '--version',
      nargs=0,
      help='print the versions of the program, TensorFlow and Python',
      **common,
    )
    self.add_argument(
      '--print-completion',
      choices=('bash', 'zsh', 'tcsh'),
      help="print a shell's completion of this command (docs/commands.md)",
      **common,
    )

  def format_help(self) -> str:
    return as_typed(super().format_help())

  def print_help(self, file: Any = None) -> None:
    print_line(self.format_help().rstrip('\n'))

  def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
    texts = sys.argv[1:] if args is None else args
    encoding = sys.getfilesystemencoding()
    for text in (*texts, os.environ.get('PWD', '')):
      # Python would encode the path so, and TensorFlow in UTF-8: two folders.
      if encoding != 'utf-8' and not text.isascii():
        self.error(f"{text!r}: this locale's encoding, {encoding}, is not UTF-8; set PYTHONUTF8=1")
    for text in texts:
      if text.encode('utf-8', 'ignore').decode() != text:  # So Python has what is no UTF-8.
        self.error(f'{text!r} is no UTF-8; give another')
    return super().parse_known_args(args, namespace)

  def error(self, message: str) -> NoReturn:
    self.exit(2, f'error: {one_line(message)}; see --help\n')
