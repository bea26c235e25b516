"""Both examples of docs/companions.md run with the real packages, with fewer steps."""

import os
import re

import checkout
import pytest


@pytest.fixture(scope='module')
def examples(data_dir, tmp_path_factory):
  """The folder in which they are, and the data."""
  folder = tmp_path_factory.mktemp('companions')
  (folder / 'data').symlink_to(data_dir)
  found = re.findall(r'```python\n# (\S+)\n(.*?)```', checkout.read('docs/companions.md'), re.S)
  assert [name for name, _ in found] == ['search.py', 'track.py']
  for name, block in found:
    assert len(block.splitlines()) <= 40
    fewer = re.sub(r"'train_steps': \d+", "'train_steps': 2, 'train_batch_size': 16", block)
    fewer = re.sub(r"'eval_every_steps': \d+", "'eval_every_steps': 1", fewer)
    fewer = re.sub(r'n_trials=\d+', 'n_trials=3', re.sub(r'% \d+', '% 1', fewer))
    fewer = fewer.replace('if self.trial.should', 'if self.trial.number == 1 or self.trial.should')
    fewer = fewer.replace("rate': rate", "rate': 1e30 if trial.number == 2 else rate")
    (folder / name).write_text(fewer)
  return folder


def ran(folder, name):
  done = checkout.python(name, cwd=folder, env={**os.environ, 'PYTHONPATH': checkout.ROOT})
  assert done.returncode == 0, done.stderr
  return done


@pytest.mark.slow
def test_optuna_searches(examples):
  done = ran(examples, 'search.py')
  value, params = done.stdout.split(' ', 1)
  assert 0 <= float(value) <= 1
  assert set(eval(params)) == {'learning_rate', 'weight_decay'}
  assert re.findall(r'Trial (\d) (?:finished|pruned)', done.stderr) == ['0', '1', '2']
  assert 'Trial 1 pruned' in done.stderr
  assert re.search('Trial 2 pruned. the loss became NaN', done.stderr)


@pytest.mark.slow
def test_mlflow_keeps_a_run(examples):
  import mlflow  # noqa: PLC0415

  ran(examples, 'track.py')
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
    client = mlflow.MlflowClient(f'file:{examples}/runs')
    [run] = client.search_runs(['0'])
    assert run.data.params['train_steps'] == '2'
    assert {'loss', 'validation_accuracy', 'eval_accuracy'} == set(run.data.metrics)
    curve = client.get_metric_history(run.info.run_id, 'validation_accuracy')
    assert [point.step for point in curve] == [1, 2]
    files = [each.path for each in client.list_artifacts(run.info.run_id, 'saved_model')]
  assert 'saved_model/saved_model.pb' in files
