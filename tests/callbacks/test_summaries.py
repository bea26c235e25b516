"""What TensorBoard itself makes of a job: asked over HTTP, and looked at in a browser."""

import json
import os
import time
import urllib.parse
import urllib.request

import pytest
from outcome import events, succeeded

from cifar10.callbacks.summaries import confusion_picture, to_png
from cifar10.data.manifest import CIFAR10

pytestmark = pytest.mark.slow

SMALL = ['--num-layers', 8, '--train-batch-size', 4, '--eval-batch-size', 64, '--num-gpus', 0]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job that ended at step 110, as if it had been killed there after a checkpoint at step 60.

  It was resumed with the rest of its files as they were, and ended at step 120.
  """
  folder = tmp_path_factory.mktemp('jobs') / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', folder, *SMALL, '--eval-every-steps', 60]
  for steps in (110, 120):
    succeeded(run_main(*flags, '--train-steps', steps))
    if steps == 110:
      (folder / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-60"\n')
      os.remove(folder / 'model.ckpt-110.index')
  return folder


@pytest.fixture(scope='module')
def ask(job, serve_tensorboard):
  """Asks a TensorBoard of the job's parent folder: (path, parameters) -> bytes."""
  with serve_tensorboard('--logdir', str(job.parent)) as address:

    def get(path, content=None, **parameters):
      url = f'{address}data/plugin/{path}?{urllib.parse.urlencode(parameters)}'
      request = urllib.request.Request(url, content, {'Content-Type': 'application/json'})
      with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()

    deadline = time.monotonic() + 60
    while set(json.loads(get('scalars/tags'))) != {'job', 'job/validation', 'job/eval'}:
      assert time.monotonic() < deadline, get('scalars/tags')
      time.sleep(0.5)
    get.address = address
    yield get


def curve(ask, run, tag):
  """[step, value] of each point."""
  return [point[1:] for point in json.loads(ask('scalars/scalars', run=run, tag=tag))]


def test_accuracy_and_loss_come_first(ask):
  tags = json.loads(ask('scalars/tags'))
  groups = sorted({tag.split('/')[0] for found in tags.values() for tag in found})
  others = ['loss_parts', 'optimizer', 'other_accuracies', 'per_class_accuracy', 'resources']
  assert groups == ['accuracy', 'loss', *others]
  for run in ('job/validation', 'job/eval'):
    assert {'accuracy', 'loss', 'other_accuracies/top5'} <= set(tags[run])
    assert len([tag for tag in tags[run] if tag.startswith('per_class_accuracy/')]) == 10


def test_a_resumed_job_is_one_curve_of_the_means_in_metrics_jsonl(job, ask):
  """The first process wrote points at 100 and 110, the second at 100 and 120."""
  trained = events(job, 'train')
  assert [event['step'] for event in trained] == [100, 120]
  named = {'loss': 'loss', 'accuracy': 'accuracy', 'learning_rate': 'optimizer/learning_rate'}
  for name, tag in {**named, 'images_per_second': 'resources/images_per_second'}.items():
    expected = [[event['step'], pytest.approx(event[name], rel=1e-5)] for event in trained]
    assert curve(ask, 'job', tag) == expected
  for tag in ('optimizer/gradient_norm', 'loss_parts/cross_entropy'):
    assert [step for step, _ in curve(ask, 'job', tag)] == [100, 120]


def test_evaluations_have_the_numbers_that_the_program_printed(job, ask):
  for event in events(job, 'evaluate'):
    if event['step'] != 110:
      shown = dict(curve(ask, f'job/{event["subset"]}', 'accuracy'))
      assert shown[event['step']] == pytest.approx(event['accuracy'], abs=1e-6)


def test_the_confusion_matrix_is_a_picture(job, ask):
  last = events(job, 'evaluate')[-1]
  tags = json.loads(ask('images/tags'))
  for run in ('job/validation', 'job/eval'):
    assert set(tags[run]) == {'pictures/confusion_matrix'}
  tag = {'run': 'job/eval', 'tag': 'pictures/confusion_matrix', 'sample': 0}
  listed = json.loads(ask('images/images', **tag))
  assert [picture['step'] for picture in listed] == [110, 120]
  png = ask(f'images/individualImage?{listed[-1]["query"]}&unused')
  assert png == to_png(confusion_picture(last['confusion_matrix'], CIFAR10.classes))


def test_hyper_parameters_and_results_stand_side_by_side(job, ask):
  experiment = json.loads(ask('hparams/experiment', b'{"experimentName": ""}'))
  hparams = [info['name'] for info in experiment['hparamInfos']]
  assert {'network', 'num_layers', 'learning_rate', 'crop_padding'} <= set(hparams)
  columns = [{'metric': info['name']} for info in experiment['metricInfos']]
  wanted = {'experimentName': '', 'allowedStatuses': ['STATUS_SUCCESS'], 'colParams': columns}
  wanted |= {'startIndex': 0, 'sliceSize': 10}
  answer = json.loads(ask('hparams/session_groups', json.dumps(wanted).encode()))
  [row] = answer['sessionGroups']
  assert row['name'] == str(job)
  assert row['hparams']['num_layers'] == 8
  assert row['hparams']['lr_values'] == '1.0,0.1,0.01,0.002'
  names = [(each['name'].get('group'), each['name']['tag']) for each in row['metricValues']]
  accuracy = row['metricValues'][names.index(('eval', 'accuracy'))]['value']
  assert accuracy == pytest.approx(events(job, 'evaluate')[-1]['accuracy'], abs=1e-6)


@pytest.fixture
def page(browser):
  """A page, and in `failures` what its scripts failed with."""
  opened = browser.new_page(viewport={'width': 1500, 'height': 1100})
  opened.failures = []
  opened.on('pageerror', lambda error: opened.failures.append(str(error)))
  yield opened
  opened.close()


def test_the_pages_in_a_browser(job, ask, page):
  """Opens on accuracy and loss; the other pages show options and the matrix; no script fails."""
  page.goto(ask.address)
  cards = page.locator('scalar-card')
  cards.nth(1).wait_for(timeout=60_000)
  assert cards.nth(0).inner_text().strip().startswith('accuracy')
  assert cards.nth(1).inner_text().strip().startswith('loss')
  page.goto('about:blank')
  page.goto(f'{ask.address}#hparams')
  page.locator('vaadin-grid').get_by_text(str(job), exact=True).first.wait_for(timeout=60_000)
  page.goto('about:blank')
  page.goto(f'{ask.address}#images')
  matrix = events(job, 'evaluate')[-1]['confusion_matrix']
  width = confusion_picture(matrix, CIFAR10.classes).width
  picture = page.locator('tf-image-loader img').first
  picture.wait_for(timeout=60_000)
  assert picture.evaluate('image => image.decode().then(() => image.naturalWidth)') == width
  assert not page.failures
