"""What is read from a job's metrics.jsonl."""

from cifar10.job import metrics_log
from cifar10.reporting.job_report import History


def test_curves_are_of_training_or_of_a_split(make_job):
  found = History(metrics_log.read(make_job()))
  assert found.curve('accuracy') == [(2, 0.1), (4, 0.2), (6, 0.3), (8, 0.4)]
  assert found.curve('accuracy', 'validation') == [(4, 0.25), (8, 0.5)]
  assert found.curve('accuracy', 'eval') == []
  assert found.splits() == ['validation']
  assert (found.last_step, found.seconds, found.restarts) == (8, 80, [4])


def test_moments_name_a_restart_and_what_was_lost(make_job):
  moments = History(metrics_log.read(make_job())).moments()
  assert [(step, what) for _, step, what, _ in moments] == [
    (0, 'started'),
    (4, 'went on'),
    (5, 'control: learning_rate=0.05'),
    (8, 'ended (train_steps)'),
  ]
  assert moments[0][0] == '2027-01-15 08:00:00'  # 1.8e9 seconds
  assert moments[1][3].startswith('1 steps were made again; the run before was killed')


def happened(*events):
  """A history of events of these kinds, at these steps."""
  return History([{'event': kind, 'step': step, 'time': 1, **rest} for kind, step, rest in events])


def test_what_counts():
  resumed = {'resumed': True, 'steps_lost': 0}
  found = happened(('start', 0, {}), ('end', 4, {'reason': 'SIGTERM'}), ('start', 4, resumed))
  assert found.moments()[-1][2:] == ('went on', '0 steps were made again')  # It was not killed.
  # Killed after a command at step 40, gone on from step 20: commands and starts are kept.
  events = [('start', 0), ('start', 35), ('control', 40), ('start', 20), ('train', 30)]
  assert happened(*((*each, {}) for each in events)).last_step == 30
  # None is what JSON has of a network that has diverged.
  found = happened(*(('train', step, {'loss': loss}) for step, loss in enumerate((1.0, None, 2.0))))
  assert found.curve('loss') == [(0, 1.0), (2, 2.0)]
