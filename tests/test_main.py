"""The flags: recipes, a job dir's configuration, and every refusal before anything is written."""

import os
import re
import shutil

import pytest
from outcome import refused, succeeded

import generate_cifar10_tfrecords
from cifar10 import checkpoint
from cifar10.data.manifest import CIFAR10
from cifar10.job import job_config
from cifar10.options import families
from cifar10.options import flags as command_line
from cifar10.options.hparams import HParams, from_values, recipe_values
from cifar10.training.schedules import steps_of


@pytest.fixture
def refusal(run_here, data_dir):
  """What the command says that refuses these flags, or this job dir, with small records."""
  return lambda job, *flags: refused(run_here('--data-dir', data_dir, '--job-dir', job, *flags))


def test_the_classic_recipe_is_the_defaults():
  assert from_values(recipe_values('classic', {})) == HParams()


def test_he2015_is_the_papers():
  """64,000 steps of 128 on 50,000 images, cut at 32,000 and 48,000, momentum 0.9, decay 1e-4."""
  recipe = from_values(recipe_values('he2015', {'num_layers': 20}))
  assert (recipe.train_steps, recipe.train_batch_size) == (64_000, 128)
  assert recipe.family.num_layers == 20
  assert (recipe.learning_rate, recipe.momentum, recipe.weight_decay) == (0.1, 0.9, 1e-4)
  assert recipe.lr_values == (1, 0.1, 0.01)
  steps = [steps_of(epochs, 50_000, 128) for epochs in recipe.lr_boundaries_epochs]
  assert steps == [32_000, 48_000]
  assert recipe.train_on == 'train+validation'


def test_a_flag_overrides_its_recipe():
  given = {'lr_boundaries_epochs': (5, 6), 'weight_decay': 0.0}
  recipe = from_values(recipe_values('he2015', given))
  assert (recipe.lr_boundaries_epochs, recipe.weight_decay) == ((5, 6), 0)
  assert recipe.lr_values == (1, 0.1, 0.01)
  assert from_values(recipe_values('fast95', {})).lr_triangle
  assert not from_values(recipe_values('fast95', {'lr_values': (1.0, 0.1, 0.1, 0.1)})).lr_triangle


def test_recipes_are_listed(run_here):
  result = run_here('--list-recipes')
  assert result.returncode == 0
  listed = result.stdout
  for name, recipe in families.RECIPES.items():
    assert f'{name}\n  accuracy: {recipe.accuracy}\n  cost: {recipe.cost}\n' in listed
  assert '--lr-boundaries-epochs 81.92,122.88' in listed
  # What is listed can be given.
  [line] = [line for line in listed.splitlines() if '--cutout' in line]
  given = command_line.parse('', line.removeprefix('  is: ').split())
  assert from_values(given) == from_values(recipe_values('fast96', {}))


# The last flag of each is the one that is named, or what stands behind the arrow.
REFUSED = """
--recipe fast94 --widths 64,32,256
--recipe fast94 --cutout 33
--widths 64,256,256 -> --widths 64,256,256 belongs to --network fastnet, not to resnet
--network tiny_network:Tiny --no-bottleneck -> --bottleneck False belongs to --network resnet
--network tiny_network:Tiny --widths 64,256,256 -> belongs to --network fastnet, not to tiny_network
--epochs 5 -> did you mean --train-epochs?
--lr 0.1 -> did you mean --learning-rate?
--batch-size 64 -> did you mean --train-batch-size?
--mixup 0.2 -> did you mean --augmentation?
--dropout 0.5 -> --dropout 0.5; see --help
--learning_rate 0.1 -> did you mean --learning-rate?
--label-smoothing 1
--learning-rate nan
--num-inter-threads 1000000
--train-batch-size 0
--train-batch-size 1000000000
--train-steps 1 --num-cpu-towers 3 -> 128 is not divisible by 3 towers
--num-gpus 3
--variable-strategy GPU
--data-format channels_first
--train-epochs 2e9 -> --train-steps
--profile-steps 1:2 -> a --callback may
--best-by=loss -> --best-by is gone since version 2: best/ ranks by accuracy
--lr-values 1,0.1 -> 2 values and its boundaries are 3
--lr-values 1,0.1 --lr-boundaries-epochs -1 -> must rise from above 0
--lr-triangle 0.2,1.5,0
--resolutions 24
--resolutions 24,0.3,28,0.2 -> must be pairs of 12 to 31 pixels and rising parts up to 1, as 20,0.2
--resolutions 24,3
--freeze (
--checkpoint=
--out=
--distribute mirrored -> mirrored is gone since version 2: the devices of one host
--distribute multi_worker_mirrored -> needs workers in TF_CONFIG
"""


@pytest.mark.parametrize('row', REFUSED.strip().splitlines())
def test_refuses_before_anything_is_written(refusal, tmp_path, row):
  words, _, named = row.partition(' -> ')
  said = refusal(tmp_path / 'job', *words.split())
  assert (named or re.findall(r'--[a-z-]+', words)[-1]) in said
  assert not (tmp_path / 'job').exists()


def test_a_refusal_is_one_line_and_exit_code_2(run_here, tmp_path):
  missing = tmp_path / 'no data'
  result = run_here('--data-dir', missing, '--job-dir', tmp_path / 'job', '--num-layers', 8)
  line = refused(result, at_once=True)
  assert f"python generate_cifar10_tfrecords.py --data-dir '{missing}'" in line
  assert not (tmp_path / 'job').exists()


RESNET20 = '{"num_layers": 20, "train_on": "train"}'
WITH_EMA = '{"num_layers": 8, "train_on": "train+validation", "ema_decay": 0.9}'
OTHER_DATA = '{"num_layers": 8, "train_on": "train+validation", "data": {"train": "x"}}'


@pytest.mark.parametrize(
  ('files', 'message'),
  [
    ({'config.json': RESNET20, 'checkpoint': ''}, 'num_layers is 20 there and 8 here'),
    ({'config.json': WITH_EMA, 'checkpoint': ''}, 'ema_decay is 0.9 there and 0.0 here'),
    ({'config.json': '{"num_layers": 8}', 'checkpoint': ''}, 'train_on is train there and train+'),
    ({'config.json': OTHER_DATA, 'checkpoint': ''}, 'was trained on other data'),
    ({'config.json': RESNET20, 'best/model.ckpt-3.index': ''}, 'num_layers is 20 there'),
    ({'config.json': '{', 'checkpoint': ''}, 'is damaged'),
    ({'config.json': '{"num_layers": "eight"}', 'checkpoint': ''}, '(--num-layers is "eight"'),
    ({'config.json': '{"network": "resnext"}', 'checkpoint': ''}, '(--network resnext is none of'),
    ({'checkpoint': ''}, 'another program wrote them'),
    ({'': ''}, 'Not a directory'),
  ],
)
def test_a_job_dir_keeps_its_configuration(refusal, tmp_path, files, message):
  job = tmp_path / 'job'
  for name, content in files.items():
    (job / name).parent.mkdir(parents=True, exist_ok=True)
    (job / name).write_text(content)
  assert message in refusal(job, '--num-layers', 8, '--train-on', 'train+validation')
  for name, content in files.items():
    assert (job / name).read_text() == content
  names = {os.path.basename(name) for name in files if '.' in name}
  assert {path.name for path in job.rglob('*.*')} == names


def test_a_job_dir_remembers_the_last_run(tmp_path):
  data, folder = {'train': 'digest'}, str(tmp_path)
  _, config = job_config.before_and_now(folder, HParams(train_steps=10), 'data', CIFAR10, data)
  job_config.write_config(folder, config)
  (tmp_path / 'checkpoint').touch()
  longer = HParams(train_steps=20, lr_triangle=(0.0, 0.5, 0.0))
  before, now = job_config.before_and_now(folder, longer, 'data', CIFAR10, None)
  assert (before, now['data']) == (config, data)
  changed = {name: now[name] for name in before if now[name] != before[name]}
  assert changed == {'train_steps': 20, 'lr_triangle': [0.0, 0.5, 0.0]}


CONFIG = {'num_layers': 8, 'weight_decay': 0.5, 'tta': 'mirror', 'data': None}
# Gone: a schedule is of each command.
CONFIG |= {'lr_values': [1.0, 0.1], 'lr_boundaries_steps': [5]}


def test_other_commands_take_over_what_was_trained():
  """Not what the command line says, and nothing for what is younger than the job."""
  adopted = job_config.adopt_config({'tta': 'none'}, CONFIG, 'job', training=False)
  assert adopted == from_values({'num_layers': 8, 'weight_decay': 0.5, 'tta': 'none'})


def test_training_takes_over_only_what_the_job_dir_belongs_to():
  for kept in ({'num_layers': 8}, {'network': 'fastnet', 'first_bias_steps': 146}):
    adopted = job_config.adopt_config({'seed': 3}, {**CONFIG, **kept}, 'job', training=True)
    assert adopted == from_values({'seed': 3, **kept})


def test_an_old_job_whose_name_is_a_pattern_is_told_to_move(run_here, old_job, data_dir, tmp_path):
  odd = tmp_path / 'lr[0.1]*?\\x'
  old_job.rename(odd)
  evaluate = ['--mode', 'evaluate', '--data-dir', data_dir, '--job-dir']
  assert 'move there what this one has' in refused(run_here(*evaluate, odd))
  assert 'move there' in refused(run_here('list', odd, command=checkpoint))
  shutil.move(odd, tmp_path / 'moved')
  assert succeeded(run_here(*evaluate, tmp_path / 'moved'))['global_step'] == 8


@pytest.mark.parametrize('job', ['jo//b///', " '$HOME{x}%s ünï\n"])
def test_other_names_mean_nothing(run_here, tmp_path, monkeypatch, job):
  """And data may lie in a folder of any name."""
  monkeypatch.chdir(tmp_path)
  data = 'lr[0.1]*?\\x/data'
  made = run_here('--data-dir', data, '--synthetic', 20, command=generate_cifar10_tfrecords)
  assert succeeded(made)['examples']['train'] == 80
  small = ['--network', 'tiny_network:Tiny', '--train-batch-size', 8, '--train-steps', 2]
  assert succeeded(run_here('--data-dir', data, '--job-dir', job, *small))['global_step'] == 2
  assert os.path.isfile(os.path.join(job, 'config.json'))
