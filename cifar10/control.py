"""Controls a running training: learning rate, checkpoint, evaluation, stop.

  python -m cifar10.control JOB learning_rate=0.05

sets the learning rate in place of the schedule's; `learning_rate=schedule` returns to it. The
other requests: `save` a checkpoint, `evaluate` (saves one, too), `stop` as after the last step.
The command waits until the training has carried the request out, and prints the answer. While
nobody trains, `go-on` lifts an early end, and `learning_rate=schedule` a rate that was set.
"""

import contextlib
import functools
import os
import sys
import time

from cifar10.core import cli, files
from cifar10.core.errors import CommandError, InputError
from cifar10.job import control_requests, stop_record
from cifar10.job.control_requests import Command

_LOOK_SECONDS = 0.1


def main() -> None:
  """Runs the command: sends a request, waits for the answer, prints it as one JSON object."""
  parser = cli.OneLineParser(description=__doc__)
  parser.add_argument('job_dir', type=cli.path, metavar='JOB', help='the --job-dir of the training')
  rates = [f'{rate}=NUMBER|{control_requests.SCHEDULE}' for rate in control_requests.RATES]
  parser.add_argument('order', metavar='REQUEST', help=', '.join([*rates, *control_requests.VERBS]))
  arguments = parser.parse_args()
  job_dir, command = arguments.job_dir, control_requests.parse(arguments.order)
  if _is_training(job_dir):
    with cli.ended_by_signals():
      answer = _ask(job_dir, command)
  elif lifted := _lifted(job_dir, command):
    answer = {'ok': True, 'answer': lifted}
  else:
    raise CommandError(f'nobody trains in {job_dir}; start the training first')
  print(answer['answer'], file=sys.stderr)
  cli.print_result(files.json_text({'order': str(command), **answer}))
  if not answer['ok']:
    sys.exit(2)


def _is_training(job_dir: str) -> bool:
  """Tells whether a process trains in the job dir; raises InputError if it may not be read."""
  try:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
      files.identity(os.path.join(job_dir, os.curdir))  # Else it would seem to be empty.
    return bool(control_requests.who_trains(job_dir))
  except OSError as error:
    raise InputError(f'{job_dir} cannot be read ({error.strerror})') from None


def _lifted(job_dir: str, command: Command) -> str:
  """Takes back an early end, or a learning rate that was set; returns '' if there is none."""
  if command.verb == 'go-on' and stop_record.read(job_dir):
    stop_record.lift(job_dir)
    return 'the job goes on when it is started'
  if command.verb in control_requests.RATES and command.value is None:
    rates = control_requests.read_rates(job_dir)
    if rates.pop(command.verb, None) is not None:
      control_requests.remember_rates(job_dir, rates)
      return f'{command.verb} follows the schedule when the job is started'
  return ''


def _ask(job_dir: str, command: Command) -> dict[str, object]:
  """Sends the request and waits; raises CommandError if the training ends in the meantime."""
  with files.naming_errors('JOB', job_dir), files.refusing_errors('JOB', job_dir):
    name = control_requests.request(job_dir, command)
  try:
    is_trained, looked = True, time.monotonic()
    while (answer := control_requests.take_answer(job_dir, name)) is None:
      if not is_trained:
        raise CommandError(f'the training in {job_dir} ended before it obeyed')
      time.sleep(_LOOK_SECONDS)
      if time.monotonic() - looked > 1:
        is_trained, looked = bool(control_requests.who_trains(job_dir)), time.monotonic()
  finally:  # Also after a signal: nobody obeys it later.
    control_requests.withdraw(job_dir, name)
  return answer


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
