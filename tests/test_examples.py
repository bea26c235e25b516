"""The callbacks of examples/, each in a training as its first lines say."""

import glob
import json
import os
import re
import sys
import types

import checkout
import pytest
from outcome import events, succeeded

from cifar10.job import control_requests

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 64]


@pytest.fixture(autouse=True)
def outside(monkeypatch):
  monkeypatch.syspath_prepend(os.path.join(checkout.ROOT, 'tests', 'own'))
  monkeypatch.syspath_prepend(os.path.join(checkout.ROOT, 'examples'))


@pytest.fixture
def train(run_here, data_dir, tmp_path):
  """Trains four steps with a callback, with an evaluation after each."""

  def run(callback, *more):
    flags = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', *SMALL, '--train-steps', 4]
    result = run_here(*flags, '--eval-every-steps', 1, '--callback', callback, *more)
    succeeded(result)
    return result

  return run


def test_a_shell_has_session_batch_and_run(run_main, data_dir, tmp_path):
  """Typed into: it reads the step by the session, is left by exit(), and ends the training."""
  job = tmp_path / 'job'
  job.mkdir()
  (job / 'shell').touch()
  typed = 'step = session.run(tf.compat.v1.train.get_global_step())\n'
  typed += "print('TYPED', step, run.step, batch['images'].shape)\n"
  typed += "open(f'{run.job_dir}/shell', 'w').close()\nexit()\n"  # Another shell, a step later.
  typed += "run.stop('seen enough')\n"
  paths = os.pathsep.join([os.path.join(checkout.ROOT, 'examples'), os.environ['PYTHONPATH']])
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--train-steps', 4]
  flags += ['--callback', 'debug_shell:DebugShell']
  result = run_main(*flags, input=typed, env={**os.environ, 'PYTHONPATH': paths})
  succeeded(result)
  assert json.loads(result.stdout)['global_step'] == 2  # The prompts are not among results.
  assert 'TYPED 1 1 (16, 32, 32, 3)' in result.stderr
  assert [event['reason'] for event in events(job, 'end')] == ['callback']
  assert not (job / 'shell').exists()


def test_use_of_gpus_is_a_curve(train, tmp_path, monkeypatch):
  """Of a made-up GPU; the processors' is real."""
  nvml = types.SimpleNamespace(
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 2,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetMemoryInfo=lambda gpu: types.SimpleNamespace(used=(3 - gpu) * 2**30),
    nvmlDeviceGetUtilizationRates=lambda gpu: types.SimpleNamespace(gpu=75 - gpu),
  )
  monkeypatch.setitem(sys.modules, 'pynvml', nvml)
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '1')
  train('gpu_utilization:GpuUtilization')
  points = {event['name']: event['value'] for event in events(tmp_path / 'job', 'scalar')}
  assert points['resources/gpu_0_memory_gib'] == 2
  assert points['resources/gpu_0_percent'] == 74
  assert 0 < points['resources/cpu_percent'] <= 100


def test_a_rate_falls_and_a_resumed_job_keeps_it(train, tmp_path):
  """Without patience after each of four evaluations: 0.1 times 0.1^4."""
  (tmp_path / 'at_once.py').write_text(
    'import lower_rate_on_plateau\n\ndef make(run):\n'
    '  return lower_rate_on_plateau.LowerRate(run, patience=0)\n'
  )
  sys.path.append(str(tmp_path))
  train('at_once:make')
  sys.path.remove(str(tmp_path))
  [rate] = control_requests.read_rates(str(tmp_path / 'job')).values()
  assert rate == pytest.approx(1e-5)


def test_a_command_hears_of_evaluations_and_of_the_end(train, tmp_path, monkeypatch):
  """Its failure is a line, and training goes on."""
  said, job = tmp_path / 'said', tmp_path / 'job'
  values = '$CIFAR10_EVENT $CIFAR10_STEP $CIFAR10_SUBSET$CIFAR10_REASON $CIFAR10_ACCURACY'
  monkeypatch.setenv('SEND_STAT', f'echo {values} >> {said}; exit 3')
  result = train('send_stat:SendStat')
  evaluated = [(e['step'], e['subset'], e['accuracy']) for e in events(job, 'evaluate')]
  lines = [f'evaluate {step} {split} {accuracy}' for step, split, accuracy in evaluated]
  lines.insert(4, 'end 4 train_steps')  # Before the evaluation of the test set.
  assert said.read_text().splitlines() == lines
  assert result.stderr.count('returned non-zero exit status 3') == 6
  assert glob.glob(f'{job}/model.ckpt-4.index')


@pytest.fixture(scope='module')
def program(data_dir, tmp_path_factory):
  """Runs an example of a program beside this one, with fewer steps and trials -> its folder."""

  def run(name):
    folder = tmp_path_factory.mktemp(name)
    (folder / 'data').symlink_to(data_dir)
    text = checkout.read(f'examples/{name}.py')
    text = re.sub(r"'train_steps': \d+", "'train_steps': 2, 'train_batch_size': 16", text)
    text = re.sub(r"'eval_every_steps': \d+", "'eval_every_steps': 1", text)
    text = re.sub(r'% \d+', '% 1', re.sub(r'n_trials=\d+', 'n_trials=3', text))
    # The second of three trials is no good, and the rate of the third is too high.
    text = text.replace('if self.trial.should', 'if self.trial.number == 1 or self.trial.should')
    text = text.replace("rate': rate", "rate': 1e30 if trial.number == 2 else rate")
    (folder / f'{name}.py').write_text(text)
    environment = {**os.environ, 'PYTHONPATH': checkout.ROOT}
    return folder, checkout.python(f'{name}.py', cwd=folder, env=environment, must_succeed=True)

  return run


@pytest.mark.slow
def test_optuna_searches(program):
  _, done = program('optuna_search')
  value, params = done.stdout.split(' ', 1)
  assert 0 <= float(value) <= 1
  assert set(eval(params)) == {'learning_rate', 'weight_decay'}
  assert re.findall(r'Trial (\d) (?:finished|pruned)', done.stderr) == ['0', '1', '2']
  assert 'Trial 1 pruned' in done.stderr
  assert re.search('Trial 2 pruned. the loss became NaN', done.stderr)


@pytest.mark.slow
def test_mlflow_keeps_a_run(program, monkeypatch):
  mlflow = pytest.importorskip('mlflow')
  folder, _ = program('mlflow_run')
  monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
  client = mlflow.MlflowClient(f'file:{folder}/runs')
  [run] = client.search_runs(['0'])
  assert run.data.params['train_steps'] == '2'
  assert {'loss', 'validation_accuracy', 'eval_accuracy'} == set(run.data.metrics)
  curve = client.get_metric_history(run.info.run_id, 'validation_accuracy')
  assert [point.step for point in curve] == [1, 2]
  files = [each.path for each in client.list_artifacts(run.info.run_id, 'saved_model')]
  assert 'saved_model/saved_model.pb' in files
