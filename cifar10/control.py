"""Controls a running training: learning rate, checkpoint, evaluation, stop.

  python -m cifar10.control JOB learning_rate=0.05

sets the learning rate in place of the schedule's; `learning_rate=schedule` returns to it. The
other requests: `save` a checkpoint, `evaluate` (saves one, too), `stop` as after the last step.
The command waits until the training has carried the request out, and prints the answer. While
nobody trains, `go-on` lifts an early end, and `learning_rate=schedule` a rate that was set.
"""

import functools
import sys
import time

from cifar10.core import cli, files
from cifar10.core.errors import CommandError
from cifar10.job import control_requests, stop_record


def main() -> None:
  """Runs the command: sends a request, waits for the answer, prints it as one JSON object."""
  parser = cli.OneLineParser(description=__doc__)
  parser.add_argument('job_dir', type=cli.path, metavar='JOB', help='the --job-dir of the training')
  parser.add_argument('order', metavar='REQUEST', help=control_requests.ORDERS)
  arguments = parser.parse_args()
  job_dir, order = arguments.job_dir, arguments.order
  control_requests.parse(order)
  act = _ask if control_requests.who_trains(job_dir) else _lift
  answer = act(job_dir, order)
  print(answer['answer'], file=sys.stderr)
  cli.print_result(files.json_text({'order': order, **answer}))
  if not answer['ok']:
    sys.exit(2)


def _ask(job_dir: str, order: str) -> dict[str, object]:
  """Sends the request and waits; raises CommandError if the training ends in the meantime."""
  with files.naming_errors('JOB', job_dir, is_first=True):
    name = control_requests.request(job_dir, order)
  try:
    while True:
      is_trained = control_requests.who_trains(job_dir)  # It may answer and end just now.
      if answer := control_requests.read_answer(job_dir, name):
        return answer
      if not is_trained:
        raise CommandError(f'the training in {job_dir} ended before it obeyed')
      time.sleep(0.2)
  finally:  # Its answer, or after a signal itself: nobody obeys it later.
    control_requests.withdraw(job_dir, name)


def _lift(job_dir: str, order: str) -> dict[str, object]:
  """Takes back an early end, or a learning rate that was set; raises CommandError without one."""
  verb, value = control_requests.parse(order)
  if verb == 'go-on' and stop_record.read(job_dir):
    stop_record.lift(job_dir)
    return {'ok': True, 'answer': 'the job goes on when it is started'}
  rates = control_requests.read_rates(job_dir) if verb in control_requests.RATES else {}
  if value is None and rates.pop(verb, None) is not None:
    control_requests.remember_rates(job_dir, rates)
    return {'ok': True, 'answer': f'{verb} follows the schedule when the job is started'}
  if verb == 'go-on':
    raise CommandError(f'the job in {job_dir} has not ended early; its command goes on with it')
  raise CommandError(f'nobody trains in {job_dir}; start the training first')


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
