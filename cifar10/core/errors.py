"""The errors that end a command with one line on standard error and an exit code."""

from cifar10.core.logs import one_line


class CommandError(Exception):
  """A command cannot do what it was asked: one line, and an exit code."""

  code = 1

  def __init__(self, message: str):
    """`message` may name a path or a value with anything in it."""
    super().__init__(one_line(message))

  def _render_traceback_(self) -> list[str]:
    """Returns what IPython shows of it in place of a traceback."""
    return [f'{type(self).__name__}: {self}']


class InputError(CommandError, ValueError):
  """The user's input is at fault. The message names the value and the remedy, in one line."""

  code = 2


class TaskLostError(CommandError):
  """Another task of the cluster, without which this one cannot go on, is gone."""

  code = 138  # A supervisor starts the task again, unlike after a mistake or a full disk.


class SomeFailedError(CommandError):
  """Some of what was asked for could not be done, and all else was."""


class StorageError(CommandError):
  """A folder or a file cannot be used any more, through no fault in the input."""


class SourceError(CommandError, ValueError):
  """A --source failed, or gave what is no example, in the middle of a training."""


class CallbackError(CommandError):
  """A callback of the user's own failed."""


class Terminated(Exception):  # noqa: N818  (an end in good order, not an error)
  """The run ended in good order, and the training is saved: after SIGTERM, Ctrl-C or SIGHUP.

  Its text is the signal's name; 'SIGTERM' for what else told the process to end.
  """
