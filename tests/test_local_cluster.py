"""Clusters of real processes: they start, survive their tasks' deaths, and end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import checkout
import gpus
import numpy as np
import psutil
import pytest
import tensorflow as tf
from outcome import events, followed, refused, until
from recomputed import AVERAGED, assert_close, assert_equal, check_averages, variables
from tasks import ALL_REDUCE, FOREVER, PATIENCE_SECONDS, RESNET, SMALL, Tasks

from cifar10 import local_cluster
from cifar10.core import files
from cifar10.core.errors import TaskLostError
from cifar10.job import checkpoints, job_config, metrics_log

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
long = pytest.mark.long
# Where any network will do: its graphs are made in a fifth of the time.
TINY = ['--network', 'tiny_network:Tiny']
ENDLESS = [*FOREVER, *TINY]
# A schedule that does not depend on the last step.
DOORS = [*TINY, '--optimizer', 'tensorflow:compat.v1.train.AdamOptimizer', '--learning-rate', 0.001]
DOORS += ['--schedule=outside_parts:by_epoch', '--augmentation=outside_parts:blended']


@pytest.fixture
def cluster(data_dir, tmp_path):
  """Makes and starts one cluster for a test, and ends it after it."""
  made = []

  def make(*flags, workers=1, ps=1, starts=True, **more):
    job = tmp_path / 'job'
    ps = 0 if '--distribute' in flags else ps
    network = [] if '--network' in flags else RESNET
    flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, *network, *flags]
    made.append(Tasks(job, flags, num_workers=workers, num_ps=ps, **more))
    if starts:
      made[-1].start()
    return made[-1]

  yield make
  for tasks in made:
    tasks.__exit__()


def is_our_line(line):
  return re.match(r'\d\d:\d\d:\d\d |started as process |ended by SIG|error: ', line)


@pytest.mark.parametrize('workers', [1, pytest.param(2, marks=long)])
@pytest.mark.parametrize('sync', [pytest.param([], marks=long), ['--sync']], ids=['async', 'sync'])
@pytest.mark.parametrize('ps', [1, pytest.param(2, marks=long)])
def test_every_task_ends(cluster, ps, sync, workers):
  tasks = cluster('--train-steps', 20, '--eval-every-steps', 10, *sync, workers=workers, ps=ps)
  result = tasks.succeeded()
  assert all(is_our_line(line) for _, line in tasks.log), tasks.text()
  assert (result['subset'], result['examples']) == ('eval', 70)
  # The batches of 8 of the chief and all workers together, or of each alone.
  [start] = events(tasks.job_dir, 'start')
  assert start['examples_per_step'] == (8 * (1 + workers) if sync else 8)
  if sync:
    assert result['global_step'] == 20
  else:  # A worker that reads the step as the others write it makes up to two more.
    assert 20 <= result['global_step'] <= 20 + 2 * workers
  for worker in range(workers):
    made = json.loads(tasks.results[f'worker {worker}'])
    assert made['task'] == f'worker {worker}'
    assert 0 <= made['steps'] <= 21
  if sync:  # Of a finished job no task waits for another.
    tasks.start()
    assert tasks.succeeded()['global_step'] == 20


def test_towers_of_a_worker_lie_on_devices_of_their_own(cluster):
  """Its server has the whole configuration of its sessions, virtual CPUs too."""
  more = ['--num-cpu-towers', 2, '--log-device-placement', '--train-steps', 2]
  tasks = cluster(*more, '--sync', '--eval-every-steps', 10)
  tasks.succeeded()
  for name, job in (('chief 0', 'chief'), ('worker 0', 'worker')):
    for tower in range(2):
      devices = set(tasks.said(name, rf'^tower_{tower}/\S*Conv2D\S*: \(Conv2D\): (\S+)'))
      assert devices == {f'/job:{job}/replica:0/task:0/device:CPU:{tower}'}


@pytest.mark.gpu
def test_all_reduce_makes_the_updates_that_parameter_servers_make(cluster, tmp_path):
  """From the same initial values: three steps of two workers either way end with equal values."""
  flags = ['--train-steps', 3, '--eval-every-steps', 100, *gpus.flags(1)]
  servers = cluster(*flags, '--sync')
  servers.succeeded()
  job = tmp_path / 'all_reduce'
  shutil.copytree(servers.job_dir, job)
  (job / 'model.ckpt-3.index').unlink()
  (job / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-0"')
  reduced = cluster(*flags, *ALL_REDUCE, '--job-dir', job)
  result = reduced.succeeded()
  # Of GPUs TensorFlow itself tells in lines of its own.
  assert gpus.visible() or all(is_our_line(line) for _, line in reduced.log), reduced.text()
  assert (result['global_step'], result['subset'], result['examples']) == (3, 'eval', 70)
  assert json.loads(reduced.results['worker 0'])['steps'] == 3
  reduced.start()  # Of a finished job no task waits for another.
  assert reduced.succeeded()['global_step'] == 3
  assert_close(servers.job_dir, job, 3)


@long
def test_sigterm_to_one_ends_all_reduce_after_the_same_step(cluster):
  tasks = cluster(*FOREVER, *ALL_REDUCE, '--eval-every-steps', 10**6)
  tasks.until(lambda: tasks.said('chief 0', 'images/s'))
  since = time.monotonic()
  tasks.processes['worker 0'].terminate()
  assert tasks.ended() == [143, 143], tasks.text()
  assert time.monotonic() - since < 20
  assert tasks.said('chief 0', 'another task was told to end')
  step = tasks.step()
  assert step > 0  # Saved because of the signal, and not before.
  tasks.start()
  tasks.until(tasks.resumed)
  assert tasks.resumed() == [step]


@long
@pytest.mark.parametrize(('name', 'again'), [('worker 0', ()), ('chief 0', ['chief 0'])])
def test_all_reduce_ends_when_one_is_gone_or_started_again_alone(cluster, name, again):
  """By a supervisor, before the other has noticed."""
  tasks = cluster(*FOREVER, *ALL_REDUCE, '--start-timeout', 40)
  tasks.until_step(10)
  tasks.kill(name)
  for each in again:
    tasks.start(each)
  assert set(tasks.ended()) <= {TaskLostError.code, -signal.SIGKILL}, tasks.text()
  assert all(is_our_line(line) for _, line in tasks.log), tasks.text()
  [other] = {'chief 0', 'worker 0'} - {name}
  assert f'{name} ' in tasks.said(other, 'error: .*')[-1]


@pytest.mark.parametrize(
  ('flags', 'workers'),
  [(['--sync'], 2), (['--sync', *DOORS], 1), pytest.param(ALL_REDUCE, 1, marks=long)],
  ids=['sync', 'doors', 'all-reduce'],
)
def test_a_deterministic_cluster_makes_the_same_again(cluster, flags, workers, tmp_path):
  """Once in one run, and once in two."""
  for job, ends in (('once', [30]), ('twice', [12, 30])):
    for end in ends:
      more = ['--job-dir', tmp_path / job, '--train-steps', end, '--eval-every-steps', 10**6]
      cluster(*flags, '--deterministic', *more, workers=workers, ps=2).succeeded()
  assert_equal(tmp_path / 'once', tmp_path / 'twice', 30)


@long
@pytest.mark.parametrize('flags', [['--sync'], ALL_REDUCE], ids=['sync', 'all-reduce'])
def test_a_cluster_averages_the_weights_as_one_process_does(cluster, flags):
  tasks = cluster(*AVERAGED, *flags, ps=2)
  tasks.succeeded()
  check_averages(tasks.job_dir)


@pytest.mark.parametrize('flags', [['--sync'], ALL_REDUCE], ids=['sync', 'all-reduce'])
def test_a_cluster_starts_from_another_jobs_weights(cluster, tmp_path, flags):
  other = f'{checkout.OLD_JOBS}/resnet8'
  more = ['--warm-start-from', other, '--train-steps', 1, '--eval-every-steps', 10]
  cluster(*more, *flags, '--learning-rate', 1e-30).succeeded()
  before, after = variables(other, 8), variables(tmp_path / 'job', 1)
  learned = [name for name in before if name.endswith('/kernel')]
  assert len(learned) > 7
  for name in learned:
    np.testing.assert_allclose(after[name], before[name], rtol=1e-6)


OWN = """
import numpy as np
import cifar10

def shards(shard, num_shards):
  for number in range(shard, 96, num_shards):
    yield np.full([32, 32, 3], 20 * (number % 10), np.uint8), number % 10

class Noted(cifar10.Callback):
  def __init__(self, run):
    self.path = f'{run.options.job_dir}/noted'

  def on_evaluate_end(self, evaluation):
    with open(self.path, 'a') as file:
      print(evaluation.split, evaluation.step, file=file)
"""


def test_own_parts_train_in_a_cluster_and_an_evaluator_evaluates(cluster, tmp_path, monkeypatch):
  """It calls back, and ends by itself."""
  (tmp_path / 'beside.py').write_text(OWN)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path), prepend=':')
  flags = ['--callback', 'beside:Noted', '--source', 'beside:shards', '--examples-per-epoch', 96]
  flags += ['--eval-every-steps', 2, '--train-steps', 4, '--sync', '--num-cpu-towers', 2]
  tasks = cluster(*flags, '--network', 'outside_parts:net', evaluator=True)
  assert tasks.succeeded()['global_step'] == 4
  result = json.loads(tasks.results['evaluator 0'])
  assert (result['subset'], result['examples'], result['global_step']) == ('eval', 70, 4)
  assert not tasks.said('chief 0', 'evaluated')
  assert np.abs(variables(tasks.job_dir, 4)['network/mean']).max() > 0
  with open(f'{tasks.job_dir}/noted', encoding='utf-8') as file:
    assert file.read().splitlines()[-2:] == ['validation 4', 'eval 4']


@long
def test_an_evaluator_does_not_outlast_its_chief(cluster):
  tasks = cluster('--train-steps', 20, '--start-timeout', 2, evaluator=True, starts=False)
  tasks.start('evaluator 0')
  assert tasks.ended() == [TaskLostError.code]
  [line] = tasks.said('evaluator 0', 'error: .*')
  assert 'for 2 s' in line
  assert 'the chief cannot be reached' in line
  assert '--start-timeout' in line


@long
def test_a_killed_backup_worker(cluster):
  # So slow that the loss, 2.3 without any knowledge, is near it when the worker is killed.
  slow = ['--learning-rate', 0.003, '--eval-every-steps', 20]
  tasks = cluster(*FOREVER, *slow, '--sync', '--backup-workers', 1, workers=2)
  tasks.until_step(20)
  tasks.kill('worker 1')
  before, loss = len(tasks.log), r'loss (\S+)'
  assert all(float(each) > 1.5 for each in tasks.said('chief 0', loss))
  tasks.until(lambda: any(float(each) < 1 for each in tasks.said('chief 0', loss, before)))
  assert not tasks.said('chief 0', 'waiting for (?!worker 1)')


def test_a_refused_chief_tells_the_other_tasks(cluster, tmp_path):
  """Which would wait --start-timeout, ten minutes, for it."""
  with job_config.training_lock(str(tmp_path / 'job')):
    tasks = cluster(*ENDLESS)
    assert tasks.ended() == [2, TaskLostError.code, TaskLostError.code], tasks.text()
  for name in tasks.names:
    [line] = tasks.said(name, 'error: .*')
    assert f'process {os.getpid()} on ' in line
    assert name == 'chief 0' or re.search(r'error: .*chief 0 \(\S+\) was refused: --job-dir', line)


def test_a_hanging_worker_that_synchronous_training_needs_and_a_killed_one(cluster):
  tasks = cluster(*ENDLESS, '--sync', workers=2)
  tasks.until_step(10)
  address = tasks.addresses['worker'][1]
  stopped = tasks.processes['worker 1']
  stopped.send_signal(signal.SIGSTOP)
  for name in ('chief 0', 'worker 0'):
    tasks.until(lambda: tasks.said(name, f'for worker 1 .{address}., which hangs$'))  # noqa: B023
  stopped.send_signal(signal.SIGCONT)
  tasks.until_step(tasks.step() + 20)
  tasks.kill('worker 1')
  for name in ('chief 0', 'worker 0'):
    tasks.until(lambda: tasks.said(name, f'waiting for worker 1 .{address}.$'))  # noqa: B023
  step = tasks.step()
  time.sleep(3)
  assert tasks.step() == step
  tasks.start('worker 1')
  tasks.until_step(step + 20)


@pytest.mark.parametrize('sync', [pytest.param([], marks=long), ['--sync']], ids=['async', 'sync'])
@pytest.mark.parametrize('victim', ['chief 0', 'ps 1'])
def test_all_go_on_from_the_checkpoint_after_a_kill(cluster, victim, sync):
  tasks = cluster(*ENDLESS, *sync, ps=2)
  tasks.until_step(20)
  tasks.kill(victim)
  step = tasks.step()
  tasks.start(victim)
  tasks.until(tasks.resumed)
  before = len(tasks.said('worker 0', 'images/s'))
  tasks.until_step(step + 20)
  check_resumed_at(tasks.resumed(), step, sync)
  tasks.until(lambda: len(tasks.said('worker 0', 'images/s')) > before)
  assert not tasks.codes()


def check_resumed_at(resumed, checkpoint, sync):
  """A checkpoint was perhaps being written; who waits for nobody steps before the chief looks."""
  [step] = resumed
  assert checkpoint <= step <= (checkpoint + 10 if sync else 10**6)


@long
def test_an_asynchronous_chief_that_is_killed_for_good(cluster):
  """The worker makes steps, which nobody saves: it says so, and does not do that for ever."""
  tasks = cluster(*FOREVER, '--start-timeout', 40, '--log-every', 1)
  tasks.until_step(10)
  tasks.kill('chief 0')
  assert tasks.ended() == [-9, TaskLostError.code, TaskLostError.code], tasks.text()
  chief = r'chief 0 \(\S+\)'
  assert tasks.said('worker 0', f'waiting for {chief}')
  [line] = tasks.said('worker 0', 'error: .*')
  assert re.search(f'waited 40 s: {chief} cannot be reached', line)
  assert tasks.said('ps 0', f'error: nobody trains: waited 40 s: {chief} cannot be reached')


def test_an_asynchronous_chief_says_which_steps_are_lost(cluster):
  """Its worker has trained on without it."""
  tasks = cluster(*ENDLESS, '--log-every', 0.1)
  tasks.until_step(10)
  tasks.kill('chief 0')
  saved, before = checkpoints.latest_step(tasks.job_dir), len(tasks.log)
  tasks.until(lambda: len(tasks.said('worker 0', 'images/s', before)) > 3)
  tasks.start('chief 0')
  tasks.until(lambda: len(events(tasks.job_dir, 'start')) > 1)
  [reached] = tasks.said('chief 0', rf'all go back from step (\S+) to {saved},')
  lost = events(tasks.job_dir, 'start')[-1]['steps_lost']
  assert lost == int(reached.replace(',', '')) - saved > 3


def test_a_worker_whose_last_steps_nobody_saves_does_not_end_well(cluster):
  """The chief is dead before the worker makes its last step."""
  tasks = cluster('--train-steps', 600, '--save-every-steps', 20, '--log-every', 1)
  tasks.until_step(20)
  tasks.kill('chief 0')
  saved = checkpoints.latest_step(tasks.job_dir)
  assert tasks.processes['worker 0'].wait(PATIENCE_SECONDS) == TaskLostError.code, tasks.text()
  [line] = tasks.said('worker 0', 'error: .*')
  assert re.search(f'before it saved the last step: .* has step {saved}; start the chief', line)
  assert not tasks.results.get('worker 0')


@pytest.mark.parametrize('sync', [pytest.param([], marks=long), ['--sync']], ids=['async', 'sync'])
def test_sigterm(cluster, sync):
  tasks = cluster(*ENDLESS, '--eval-every-steps', 10**6, '--log-every', 1, *sync)
  tasks.until(lambda: tasks.said('chief 0', 'images/s') and tasks.said('worker 0', 'images/s'))
  for name in ('worker 0', 'chief 0'):
    [code], seconds = tasks.terminate(name)
    assert code == 143, tasks.text()
    assert seconds < 20
    if name == 'worker 0':
      tasks.start(name)
      tasks.until(lambda: tasks.said('worker 0', 'joining'))
  step = tasks.step()
  assert step > 0  # Saved because of the signal, and not before.
  tasks.start('chief 0')
  tasks.until(tasks.resumed)
  check_resumed_at(tasks.resumed(), step, sync)
  assert [each['step'] for each in events(tasks.job_dir, 'end')] == [step]
  codes, seconds = tasks.terminate(*tasks.names)
  assert codes == [143, 143, 143], tasks.text()
  assert seconds < 20
  assert tasks.step() >= step


def check_ended(tasks, reason):
  """All tasks end by themselves with code 0 after one of them wants to, and the job knows why."""
  tasks.until(lambda: any(' ending: ' in line for _, line in list(tasks.log)))
  result = tasks.succeeded()
  [end] = events(tasks.job_dir, 'end')
  assert end['reason'] == result['ended_by'] == reason
  assert result['global_step'] < 10**6
  assert files.matching(f'{tasks.job_dir}/control', 'answer*') == []  # Each was read.


@pytest.mark.parametrize(
  'flags',
  [pytest.param([], marks=long), ['--sync'], pytest.param(ALL_REDUCE, marks=long)],
  ids=['async', 'sync', 'all-reduce'],
)
def test_orders_reach_every_task(cluster, flags):
  """A learning rate, and an end."""
  tasks = cluster(*ENDLESS, *flags, '--log-every', 0.5, workers=2, ps=2)
  tasks.until(lambda: all(tasks.said(f'worker {i}', 'images/s') for i in range(2)))
  tasks.order('learning_rate=0.025')
  workers = ('worker 0', 'worker 1')
  tasks.until(
    lambda: all('learning_rate 0.025 ' in tasks.said(name, '.*images/s')[-1] for name in workers)
  )
  tasks.order('stop')
  check_ended(tasks, 'control')


@long
@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
def test_an_evaluator_ends_a_cluster(cluster, sync):
  """By the first evaluation, which any accuracy satisfies; then it makes the final one and ends."""
  tasks = cluster(*FOREVER, *sync, '--stop-at-accuracy', 0, evaluator=True)
  check_ended(tasks, 'stop_at_accuracy')
  result = json.loads(tasks.results['evaluator 0'])
  # What it holds: asynchronous workers make steps between its naming and its save.
  step = tf.train.load_checkpoint(tasks.job_dir).get_tensor('global_step')
  assert (result['subset'], result['global_step']) == ('eval', step)
  assert result['ended_by'] == 'stop_at_accuracy'
  assert os.path.exists(os.path.join(tasks.job_dir, 'best', 'best.json'))
  tasks.start()  # The job is over, and says so.
  tasks.succeeded()
  assert tasks.said('chief 0', 'the job ended at step')


@pytest.mark.parametrize(
  ('missing', 'flags'),
  [
    ('worker 0', ['--sync']),
    pytest.param('ps 0', [], marks=long),
    pytest.param('chief 0', [], marks=long),
    pytest.param('worker 0', ALL_REDUCE, marks=long),
  ],
)
def test_a_task_that_never_comes_up(cluster, missing, flags):
  tasks = cluster(*ENDLESS, *flags, '--start-timeout', 18, starts=False)
  others = [name for name in tasks.names if name != missing]
  tasks.start(*others)
  assert tasks.ended() == [TaskLostError.code] * len(others), tasks.text()
  job, index = missing.split()
  address = tasks.addresses[job][int(index)]
  for name in others:
    assert tasks.said(name, f'waiting for (?:.*, )?{missing} .{address}.'), tasks.text()
    [line] = tasks.said(name, 'error: .*')
    assert f'waited 18 s: {missing} ({address}) cannot be reached' in line


def run(data_dir, job_dir, *flags):
  command = [sys.executable, '-m', 'cifar10.local_cluster', '--workers', '1', '--ps', '1', '--']
  flags = ['--data-dir', data_dir, '--job-dir', job_dir, *SMALL, *RESNET, *flags]
  process = subprocess.Popen(
    [*command, *map(str, flags)],
    cwd=checkout.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  return followed(process, subprocess.Popen.terminate)  # It ends its tasks, which SIGKILL leaves.


def test_the_command_prints_the_chiefs_result(data_dir, tmp_path, monkeypatch):
  """Behind a proxy that answers nobody, and with a line in its log that is no UTF-8."""
  monkeypatch.setenv('http_proxy', 'http://127.0.0.1:9')
  for name in ('grpc_proxy', 'no_grpc_proxy', 'no_proxy'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv('PYTHONPATH', f'{checkout.ROOT}/examples')
  monkeypatch.setenv('SEND_STAT', "printf '\\344hello\\n'")
  more = ['--callback', 'send_stat:SendStat']
  with run(data_dir, tmp_path, '--train-steps', 5, '--sync', *more) as process:
    output, log = process.communicate(timeout=PATIENCE_SECONDS)
  assert process.returncode == 0, log
  assert r'\xe4hello' in log
  [line] = output.splitlines()
  assert json.loads(line)['global_step'] == 5
  said = {entry.partition(' | ')[0].strip() for entry in log.splitlines()}
  assert said == {'chief 0', 'worker 0', 'ps 0', 'evaluator'}
  assert 'evaluator | none: the validation split has no curve and no best/; --evaluator' in log


@pytest.mark.parametrize(
  ('flags', 'says'),
  [
    (['--data-dir', 'd'], 'unrecognized arguments: --data-dir: flags of cifar10_main.py follow --'),
    (['--', '--mode=predict'], '--mode predict'),
    (['--ps', '0', '--', '--sync'], 'TF_CONFIG: cluster.ps is []; list a parameter server'),
    (['--', '--data-workers', '2'], '--data-workers is gone since version 2'),
    (['--restart'], '--restart is gone since version 2: the command again goes on'),
  ],
)
def test_what_cannot_be_a_cluster_is_one_line(run_here, old_job, tmp_path, flags, says):
  folders = ['--data-dir', tmp_path, '--job-dir', old_job] if '--' in flags else []
  assert says in refused(run_here(*flags, *folders, command=local_cluster))


@pytest.mark.skipif(sys.platform != 'linux', reason='prctl is of Linux')
@pytest.mark.usefixtures('hears_ctrl_c')
@pytest.mark.parametrize(
  ('number', 'code'),
  [(signal.SIGKILL, -9), (signal.SIGINT, 130), pytest.param(signal.SIGHUP, 129, marks=long)],
)
def test_the_end_of_the_command_leaves_nothing_behind(data_dir, tmp_path, number, code):
  """The tasks hear of it, and the chief saves the step that it came in."""
  with run(data_dir, tmp_path, *FOREVER) as process:
    children = until(lambda: len(all_ := psutil.Process(process.pid).children()) > 2 and all_, 30)
    until(lambda: list(tmp_path.glob('model.ckpt-[1-9]*.index')), PATIENCE_SECONDS)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)
  _, left = psutil.wait_procs(children, PATIENCE_SECONDS if code < 0 else 0)
  for child in left:
    child.kill()
  assert (process.returncode, left) == (code, [])
  end = metrics_log.read(str(tmp_path))[-1]
  assert (end['event'], end['reason']) == ('end', 'SIGTERM')
  # The chief may read step 9 after its update, take it for the one before, and save.
  assert 9 <= end['step'] <= checkpoints.latest_step(str(tmp_path))  # The worker's last one, too.
