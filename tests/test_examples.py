"""The callbacks and programs of examples/, each as its first lines say; docs/first_steps.ipynb."""

import glob
import json
import os
import re
import sys
import types

import checkout
import nbclient
import nbformat
import pytest
from outcome import events, succeeded

from cifar10.job import control_requests

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 64]
EACH_STEP = ['--eval-every-steps', 1, '--callback']


def test_a_shell_has_session_batch_and_run(run_main, data_dir, tmp_path):
  """Typed into: it reads the step by the session, is left by exit(), and ends the training."""
  job = tmp_path / 'job'
  job.mkdir()
  (job / 'shell').touch()
  typed = 'step = session.run(tf.compat.v1.train.get_global_step())\n'
  typed += "print('TYPED', step, run.step, batch['images'].shape)\n"
  typed += "open(f'{run.job_dir}/shell', 'w').close()\nexit()\n"  # Another shell, a step later.
  typed += "run.stop('seen enough')\n"
  paths = os.pathsep.join([f'{checkout.ROOT}/examples', os.environ['PYTHONPATH']])
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--train-steps', 4]
  flags += ['--callback', 'debug_shell:DebugShell']
  result = run_main(*flags, input=typed, env={**os.environ, 'PYTHONPATH': paths})
  assert succeeded(result)['global_step'] == 2  # The prompts are not among results.
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
  succeeded(train(*EACH_STEP, 'gpu_utilization:GpuUtilization'))
  points = {event['name']: event['value'] for event in events(tmp_path / 'job', 'scalar')}
  assert points['resources/gpu_0_memory_gib'] == 2
  assert points['resources/gpu_0_percent'] == 74
  assert 0 < points['resources/cpu_percent'] <= 100


def test_a_rate_falls_and_a_resumed_job_keeps_it(train, tmp_path, monkeypatch):
  """Without patience after each of four evaluations: 0.1 times 0.1^4."""
  (tmp_path / 'at_once.py').write_text(
    'import lower_rate_on_plateau\n\ndef make(run):\n'
    '  return lower_rate_on_plateau.LowerRate(run, patience=0)\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  succeeded(train(*EACH_STEP, 'at_once:make'))
  [rate] = control_requests.read_rates(str(tmp_path / 'job')).values()
  assert rate == pytest.approx(1e-5)


def test_a_command_hears_of_evaluations_and_of_the_end(train, tmp_path, monkeypatch):
  """Its failure is a line, and training goes on."""
  said, job = tmp_path / 'said', tmp_path / 'job'
  values = '$CIFAR10_EVENT $CIFAR10_STEP $CIFAR10_SUBSET$CIFAR10_REASON $CIFAR10_ACCURACY'
  monkeypatch.setenv('SEND_STAT', f'echo {values} >> {said}; exit 3')
  result = train(*EACH_STEP, 'send_stat:SendStat')
  succeeded(result)
  evaluated = [(e['step'], e['subset'], e['accuracy']) for e in events(job, 'evaluate')]
  lines = [f'evaluate {step} {split} {accuracy}' for step, split, accuracy in evaluated]
  lines.insert(4, 'end 4 train_steps')  # Before the evaluation of the test set.
  assert said.read_text().splitlines() == lines
  assert result.stderr.count('returned non-zero exit status 3') == 6
  assert glob.glob(f'{job}/model.ckpt-4.index')


@pytest.fixture
def program(data_dir, tmp_path):
  """Runs an example of a program beside this one, with fewer steps and trials."""

  def run(name):
    (tmp_path / 'data').symlink_to(data_dir)
    text = checkout.read(f'examples/{name}.py')
    text = re.sub(r"'train_steps': \d+", "'train_steps': 2, 'train_batch_size': 16", text)
    text = re.sub(r"'eval_every_steps': \d+", "'eval_every_steps': 1", text)
    text = re.sub(r'% \d+', '% 1', re.sub(r'n_trials=\d+', 'n_trials=3', text))
    # The second of three trials is no good, and the rate of the third is too high.
    text = text.replace('if self.trial.should', 'if self.trial.number == 1 or self.trial.should')
    text = text.replace("rate': rate", "rate': 1e30 if trial.number == 2 else rate")
    (tmp_path / f'{name}.py').write_text(text)
    environment = {**os.environ, 'PYTHONPATH': checkout.ROOT}
    return checkout.python(f'{name}.py', cwd=tmp_path, env=environment, must_succeed=True)

  return run


@pytest.mark.slow
def test_optuna_searches(program):
  done = program('optuna_search')
  value, params = done.stdout.split(' ', 1)
  assert 0 <= float(value) <= 1
  assert set(eval(params)) == {'learning_rate', 'weight_decay'}
  assert re.findall(r'Trial (\d) (?:finished|pruned)', done.stderr) == ['0', '1', '2']
  assert 'Trial 1 pruned' in done.stderr
  assert re.search('Trial 2 pruned. the loss became NaN', done.stderr)


@pytest.mark.slow
def test_mlflow_keeps_a_run(program, tmp_path, monkeypatch):
  mlflow = pytest.importorskip('mlflow')
  program('mlflow_run')
  monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
  client = mlflow.MlflowClient(f'file:{tmp_path}/runs')
  [run] = client.search_runs(['0'])
  assert run.data.params['train_steps'] == '2'
  assert {'loss', 'validation_accuracy', 'eval_accuracy'} == set(run.data.metrics)
  curve = client.get_metric_history(run.info.run_id, 'validation_accuracy')
  assert [point.step for point in curve] == [1, 2]
  files = [each.path for each in client.list_artifacts(run.info.run_id, 'saved_model')]
  assert 'saved_model/saved_model.pb' in files


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
  """In a real kernel, with the notebook's own bars."""
  monkeypatch.setenv('PYTHONPATH', checkout.ROOT)
  monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
  monkeypatch.delenv('MPLBACKEND', raising=False)  # Else the kernel has no pictures of its own.
  notebook = nbformat.read(os.path.join(checkout.ROOT, 'docs', 'first_steps.ipynb'), as_version=4)
  nbformat.validate(notebook)
  cells = [cell for cell in notebook.cells if cell.cell_type == 'code']
  assert not any(cell.outputs or cell.execution_count for cell in cells)
  resources = {'metadata': {'path': str(tmp_path)}}
  nbclient.NotebookClient(notebook, timeout=200, resources=resources).execute()
  data, trained, shown, last = (json.dumps(cells[at].outputs) for at in (1, 2, 3, -1))
  assert "'eval': 500" in data
  assert 'evaluated at step 120' in trained
  assert 'image/png' in shown
  assert 'job/export/' in last
  [widgets] = notebook.metadata.widgets.values()
  states = [each['state'] for each in widgets['state'].values()]
  bars = ' '.join(str(state.get('value')) for state in states).replace('\u2007', ' ')
  assert re.search(r'step \d+ of 120  epoch', bars)
  # A bar that closes leaves what it last drew, which on a fast machine is not its end.
  assert re.search(r'evaluating eval \d+ of 500 images', bars)
