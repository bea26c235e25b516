"""The flags: defaults of old, and every refusal before anything is written."""

import json
import os
import subprocess
import sys

import checkout
import pytest
from outcome import refused

import cifar10_main
from cifar10.core.errors import InputError
from cifar10.core.option import names
from cifar10.data.info import CIFAR10
from cifar10.job import adopted_config, job_config
from cifar10.options import families
from cifar10.options import flags as command_line
from cifar10.options.augmentation import Augmentation
from cifar10.options.families import BUILT_IN
from cifar10.options.hparams import HParams, from_values, recipe_values
from cifar10.options.run_options import RunOptions

ALL_NAMES = names(HParams, Augmentation, RunOptions, *BUILT_IN.values()) | {'network'}


def main(monkeypatch, *flags):
  monkeypatch.setattr(sys, 'argv', ['cifar10_main.py', *map(str, flags)])
  cifar10_main.main()


@pytest.fixture
def refusal(monkeypatch, data_dir):
  """What the command says that refuses these flags, or this job dir, with small records."""

  def run(job_dir, *flags):
    with pytest.raises(InputError) as error:
      main(monkeypatch, '--data-dir', data_dir, '--job-dir', job_dir, *flags)
    assert '\n' not in str(error.value)
    return str(error.value)

  return run


def parse(*flags):
  return vars(flags.full_parser().parse_args(['--job-dir', 'j', *flags]))


def test_defaults_of_old():
  hparams = HParams()
  assert (hparams.family.num_layers, hparams.train_steps) == (44, 80_000)
  assert (hparams.train_batch_size, hparams.eval_batch_size) == (128, 100)
  assert (hparams.momentum, hparams.weight_decay, hparams.learning_rate) == (0.9, 2e-4, 0.1)
  assert (hparams.batch_norm_decay, hparams.batch_norm_epsilon) == (0.997, 1e-5)
  assert hparams.use_distortion_for_training
  options = RunOptions('job')
  assert (options.variable_strategy, options.num_gpus) == ('CPU', None)
  assert not options.sync
  assert not options.log_device_placement
  # Options stay unset unless given: the recipe or the job dir's configuration fills them in.
  assert ALL_NAMES & set(parse()) == {'job_dir'}


@pytest.mark.parametrize(
  ('flags', 'value'),
  [
    (['--use-distortion-for-training'], True),
    (['--use-distortion-for-training', 'True'], True),
    (['--use-distortion-for-training', 'False'], False),
    (['--use-distortion-for-training=false'], False),
    (['--no-use-distortion-for-training'], False),
  ],
)
def test_a_boolean_flag_means_what_it_says(flags, value):
  assert parse(*flags)['use_distortion_for_training'] is value


def test_a_flag_of_the_old_program_reaches_the_hyper_parameters():
  flags = parse('--lr-values', '1,0.5', '--lr-boundaries-steps', '7', '--num-layers', '20')
  assert flags['lr_values'] == (1.0, 0.5)
  assert flags['lr_boundaries_steps'] == (7,)
  assert flags['num_layers'] == 20


def test_the_classic_recipe_is_the_defaults():
  assert from_values(recipe_values('classic', {})) == HParams()


def test_he2015_is_the_papers():
  """64,000 steps of 128 on 50,000 images, cut at 32,000 and 48,000, momentum 0.9, decay 1e-4."""
  recipe = from_values(recipe_values('he2015', {'num_layers': 20}))
  assert (recipe.train_steps, recipe.train_batch_size) == (64_000, 128)
  assert recipe.family.num_layers == 20
  assert (recipe.learning_rate, recipe.momentum, recipe.weight_decay) == (0.1, 0.9, 1e-4)
  assert recipe.lr_values == (1, 0.1, 0.01)
  assert recipe.lr_boundaries_steps == (32_000, 48_000)
  assert recipe.train_on == 'train+validation'


def test_a_flag_overrides_its_recipe():
  recipe = from_values(
    recipe_values('he2015', {'lr_boundaries_epochs': (5, 6), 'weight_decay': 0.0})
  )
  assert recipe.lr_boundaries_steps == ()
  assert (recipe.lr_boundaries_epochs, recipe.weight_decay) == ((5, 6), 0)
  assert recipe.lr_values == (1, 0.1, 0.01)
  assert from_values(recipe_values('fast95', {})).lr_triangle
  assert not from_values(recipe_values('fast95', {'lr_values': (1.0, 0.1, 0.1, 0.1)})).lr_triangle


def test_recipes_are_listed(monkeypatch, capsys):
  with pytest.raises(SystemExit) as end:
    main(monkeypatch, '--list-recipes')
  assert end.value.code == 0
  listed = capsys.readouterr().out
  for name in families.RECIPES:
    recipe = families.recipe(name)
    assert f'{name}\n  accuracy: {recipe.accuracy}\n  cost: {recipe.cost}\n' in listed
  assert '--lr-boundaries-steps 32000,48000' in listed
  # What is listed can be given.
  [line] = [line for line in listed.splitlines() if '--cutout' in line]
  flags = parse(*line.removeprefix('  is: ').split())
  assert from_values(command_line.command_of(flags).learning) == from_values(
    recipe_values('fast96', {})
  )


REFUSED = [
  (['--recipe', 'fast94', '--widths', '64,256'], '--widths is 64,256'),
  (['--recipe', 'fast94', '--widths', '64,32,256'], 'must be three numbers that do not fall'),
  (['--recipe', 'fast94', '--cutout', 33], '--cutout is 33'),
  (['--crop-padding', 32], '--crop-padding is 32'),
  (['--label-smoothing', 1], '--label-smoothing is 1'),
  (['--muon-learning-rate', -1], '--muon-learning-rate is -1'),
  (['--lookahead-steps', -1], '--lookahead-steps is -1'),
  (['--recipe', 'fast94', '--first-bias-steps', -1], '--first-bias-steps is -1'),
  (['--recipe', 'fast94', '--proxy-widths', '64,32,32'], '--proxy-widths is 64,32,32'),
  (['--widths', '64,256,256'], '--widths 64,256,256 belongs to --network fastnet, not to resnet'),
  (['--recipe', 'fast94', '--num-layers', 20], '--num-layers 20 belongs to --network resnet'),
  (['--num-layers', 6 * 10**6 + 2], '--num-layers is 6000002: it must be 2000 or less'),
  (['--network', 'wrn', '--wrn-depth', 6004], '--wrn-depth is 6004: it must be 2000 or less'),
  (['--network', 'fastnet', '--convs-per-group', 10**6], 'must be 1 to 100'),
  (['--num-intra-threads', 10**6], '--num-intra-threads is 1000000: it must be 0 to 1024'),
  (['--num-inter-threads', 10**6], '--num-inter-threads is 1000000: it must be 0 to 1024'),
  # 7 x 3,072 bytes an image, at the least: 21.5 TB, which no machine of these tests has.
  (
    ['--train-batch-size', 10**9],
    '--train-batch-size 1000000000: its images alone',
  ),
  (['--keep-checkpoints', 10**11], '--keep-checkpoints is 100000000000'),
  (['--num-cpu-towers', 1025], '--num-cpu-towers is 1025: it must be 1 to 1024'),
  (['--network', 'wrn', '--wrn-widen-factor', 101], 'must be 1 to 100'),
  (['--network', 'wrn', '--wrn-depth', 11], '--wrn-depth 11 is not 6n+4'),
  (['--lr-boundaries-epochs', '1,2,1e30'], 'must be below a million'),
  (['--learning-rate', 'nan'], '--learning-rate is nan'),
  (['--weight-decay', 'inf'], '--weight-decay is inf'),
  (['--lr-triangle', '0.2,0.5'], '--lr-triangle is 0.2,0.5'),
  (['--lr-triangle', '0.2,1.5,0'], 'the first factor, the part of training'),
  (['--ema-decay', 1], '--ema-decay is 1.0: it must be at least 0 and below 1'),
  (['--use-ema'], '--use-ema asks for an average of the weights, and the job was trained without'),
  (['--mode', 'train', '--ema-decay', 0.9, '--use-ema'], '--use-ema belongs to evaluations'),
  (['--num-gpus', -1], '--num-gpus is -1'),
  (['--num-gpus', 3], '--num-gpus 3 but TensorFlow sees 0'),
  (['--variable-strategy', 'GPU'], 'needs a GPU and there is none'),
  (['--data-format', 'channels_first'], 'channels_first needs a GPU'),
  (['--num-layers', 45], '--num-layers 45 is not 6n'),
  (['--num-layers', 20, '--bottleneck'], 'version 2 only'),
  (['--num-layers', 44, '--bottleneck', '--resnet-version', 2], 'nearest: 38 or 47'),
  (['--num-cpu-towers', 3], '128 is not divisible by 3 towers'),
  (['--num-cpu-towers', 0], '--num-cpu-towers is 0'),
  (['--train-batch-size', 0], '--train-batch-size is 0'),
  (['--eval-batch-size', -5], '--eval-batch-size is -5'),
  (['--train-steps', 0], '--train-steps is 0'),
  (['--eval-every-steps', 0], '--eval-every-steps is 0'),
  (['--save-every-steps', 0], '--save-every-steps is 0'),
  (['--num-intra-threads', -1], '--num-intra-threads is -1'),
  (['--learning-rate', 0], '--learning-rate is 0'),
  (['--weight-decay', -1], '--weight-decay is -1'),
  (['--momentum', 1], '--momentum is 1'),
  (['--lr-values', '1,0.1'], '2 values and its boundaries are 3'),
  (['--lr-values', '1,0.1', '--lr-boundaries-epochs', '-1'], 'must rise from above 0'),
  (['--lr-values', '1,1,1', '--lr-boundaries-steps', '5,5'], 'must rise from above 0'),
  (['--mode', 'predict'], 'needs --images'),
  (['--images', 'a.png'], 'belongs to --mode predict'),
  (['--checkpoint', 'model.ckpt-1'], '--checkpoint model.ckpt-1 belongs to --mode evaluate'),
  (['--mode', 'train', '--subset', 'eval'], '--subset eval belongs to evaluations'),
  (['--checkpoint', ''], '--checkpoint is "": it must be the name of a checkpoint'),
  (['--out', ''], '--out is empty'),
  (['--learning-rate', '1e39'], '--learning-rate is 1e+39: it must be a finite number'),
  (['--train-epochs', '2e9'], '--train-epochs 2e+09: its 4,000,000,000 steps are too many'),
  (['--eval-every-epochs', '2e9'], '--eval-every-epochs 2e+09: its 4,000,000,000 steps'),
  (['--save-every-epochs', '2e9'], '--save-every-epochs 2e+09: its 4,000,000,000 steps'),
  (['--train-epochs', 2, '--profile-steps', '5:7'], '5:7 goes beyond the last step, 4'),
  (['--mode', 'evaluate', '--profile-steps', '1:2'], '--profile-steps 1:2 belongs to training'),
  (['--warm-start-skip', 'conv'], '--warm-start-skip conv belongs to --warm-start-from'),
  (['--format', 'onnx'], '--format onnx belongs to --mode export'),
  (['--mode', 'evaluate', '--export-batch', 8], '--export-batch 8 belongs to --mode export'),
  (['--mode', 'evaluate'], 'holds no trained network'),
  (['--mode', 'export'], 'holds no trained network'),
]


@pytest.mark.parametrize(('flags', 'message'), REFUSED)
def test_refuses_before_anything_is_written(refusal, tmp_path, flags, message):
  assert message in refusal(tmp_path / 'job', *flags)
  assert not (tmp_path / 'job').exists()


@pytest.mark.parametrize('flags', [['--lr-values', 'a'], ['--num-layers', 'x'], ['--nonsense']])
def test_unparsable_flags_end_with_one_line(monkeypatch, capsys, flags):
  with pytest.raises(SystemExit) as end:
    main(monkeypatch, '--data-dir', 'd', '--job-dir', 'j', *flags)
  assert end.value.code == 2
  assert capsys.readouterr().err.count('\n') == 1


def test_a_refusal_is_one_line_and_exit_code_2(run_main, tmp_path):
  missing = tmp_path / 'no data'
  result = run_main('--data-dir', missing, '--job-dir', tmp_path / 'job', '--num-layers', 8)
  line = refused(result, at_once=True)
  assert f"python generate_cifar10_tfrecords.py --data-dir '{missing}'" in line
  assert not (tmp_path / 'job').exists()


@pytest.mark.parametrize(
  ('config', 'message'),
  [
    ('{"num_layers": 20, "train_on": "train"}', 'num_layers is 20 there and 8 here'),
    ('{"num_layers": 8, "train_on": "train"}', 'train_on is train there and train'),
    (
      '{"num_layers": 8, "train_on": "train+validation", "muon_learning_rate": 0.24}',
      'muon_learning_rate is 0.24 there and 0.0 here',
    ),
    (
      '{"num_layers": 8, "train_on": "train+validation", "lookahead_steps": 5}',
      'lookahead_steps is 5 there and 0 here',
    ),
    (
      '{"num_layers": 8, "train_on": "train+validation", "ema_decay": 0.9}',
      'ema_decay is 0.9 there and 0.0 here',
    ),
    ('{', 'is damaged'),
    ('{}', 'is damaged (it is no JSON object with options)'),
    ('{"num_layers": 8, "data": [1]}', 'is damaged (data is [1]: it must be the SHA-256 of each'),
    ('[]', 'is damaged'),
    (
      '{"num_layers": "eight"}',
      'is damaged (--num-layers is "eight": it must be a whole number below',
    ),
    ('{"num_layers": 9}', 'is damaged (--num-layers 9 is not 6n+2'),
    ('{"padding_mode": "Reflect"}', 'is "Reflect": it must be one of zeros, reflect'),
    ('{"lr_values": [1, "a"]}', 'it must be finite numbers with commas between'),
    (f'{{"momentum": 1{"0" * 400}}}', 'it must be a finite number'),
    ('{"learning_rate": NaN}', 'is damaged (--learning-rate is nan: it must be a finite number'),
    ('{"network": "resnext"}', "is damaged (--network is 'resnext': it must be one of resnet"),
    ('{"network": ["resnet"]}', "is damaged (--network is ['resnet']"),
  ],
)
def test_a_job_dir_keeps_its_configuration(refusal, tmp_path, config, message):
  (tmp_path / 'config.json').write_text(config)
  (tmp_path / 'checkpoint').touch()  # So that it has begun.
  assert message in refusal(tmp_path, '--num-layers', 8, '--train-on', 'train+validation')
  assert (tmp_path / 'config.json').read_text() == config
  assert sorted(os.listdir(tmp_path)) == ['checkpoint', 'config.json']


@pytest.mark.parametrize(
  ('files', 'message'),
  [
    (  # Of which only the best is left.
      {'job/config.json': '{"num_layers": 14}', 'job/best/model.ckpt-3.index': ''},
      'num_layers is 14 there and 8 here',
    ),
    (
      {'job/config.json': '{"num_layers": 8, "data": {"train": "x"}}', 'job/checkpoint': ''},
      'was trained on other data',
    ),
    ({'job/checkpoint': ''}, 'another program wrote them'),
    ({'job': ''}, 'is not a folder'),
  ],
)
def test_refuses_what_is_no_job_dir_of_its_own(refusal, tmp_path, files, message):
  for name, content in files.items():
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
  assert message in refusal(tmp_path / 'job', '--num-layers', 8)


def test_a_job_dir_below_a_file_is_refused(refusal, tmp_path):
  (tmp_path / 'file').touch()
  said = refusal(tmp_path / 'file' / 'job')
  assert 'config.json cannot be read (Not a directory)' in said


CONFIG = {
  'num_layers': 8,
  'weight_decay': 0.5,
  'lr_values': [1.0, 0.1],
  'lr_boundaries_steps': [5],
  'tta': 'mirror',
}


def test_other_commands_take_over_what_was_trained():
  """Not what the command line says, and nothing for what is younger than the job."""
  adopted = adopted_config.adopt_config(
    {'tta': 'none'}, {**CONFIG, 'data': None}, 'job', training=False
  )
  assert adopted == from_values(
    {**CONFIG, 'lr_values': (1.0, 0.1), 'lr_boundaries_steps': (5,), 'tta': 'none'}
  )


def test_other_commands_take_no_learning_rate_of_a_recipe():
  """vgg16's three values would not fit the job's one boundary."""
  given = {'lr_values': (1.0, 0.1, 0.01), 'tta': 'none'}
  adopted = adopted_config.adopt_config(given, CONFIG, 'job', training=False)
  assert adopted == adopted_config.adopt_config({'tta': 'none'}, CONFIG, 'job', training=False)


def test_training_takes_over_only_what_the_job_dir_belongs_to():
  adopted = adopted_config.adopt_config({'seed': 3}, CONFIG, 'job', training=True)
  assert adopted == from_values({'seed': 3, 'num_layers': 8})


def test_a_job_dir_remembers_the_last_run(tmp_path):
  data = {'train': 'digest'}
  folder = str(tmp_path / 'job')
  assert job_config.update_config(folder, HParams(train_steps=10), 'data', CIFAR10, data) == []
  (tmp_path / 'job' / 'checkpoint').touch()
  config = job_config.read_config(folder)
  assert job_config.update_config(folder, HParams(train_steps=10), 'data', CIFAR10, data) == []
  longer = HParams(train_steps=20, lr_triangle=(0.0, 0.5, 0.0))
  changes = job_config.update_config(folder, longer, 'data', CIFAR10, None)
  assert changes == ['train_steps 10 -> 20', 'lr_triangle [] -> [0.0, 0.5, 0.0]']
  expected = {**config, 'train_steps': 20, 'lr_triangle': [0.0, 0.5, 0.0]}
  assert job_config.read_config(folder) == expected
  assert expected['data'] == data


def test_an_option_that_is_younger_than_the_job_has_changed_from_its_default(tmp_path):
  job_config.update_config(str(tmp_path), HParams(), 'data', CIFAR10, None)
  config = job_config.read_config(str(tmp_path))
  del config['tta_below']
  (tmp_path / 'config.json').write_text(json.dumps(config), encoding='utf-8')
  (tmp_path / 'checkpoint').touch()
  changes = job_config.update_config(str(tmp_path), HParams(tta_below=0.7), 'data', CIFAR10, None)
  assert changes == ['tta_below 1.0 -> 0.7']


ALL_REDUCE = ['--distribute', 'multi_worker_mirrored']
TASK = '"task": {"type": "chief", "index": 0}'
WORKERS = f'{{"cluster": {{"chief": ["a:1"], "worker": ["b:1"]}}, {TASK}}}'
CLUSTER = f'{{"cluster": {{"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}}, {TASK}}}'


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    (('not json', []), 'TF_CONFIG is not JSON'),
    (('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}}', []), 'say who this process is'),
    (('', ['--backup-workers', 1]), 'belongs to --sync'),
    (('', ['--backup-workers', 1, '--sync']), '1 of 1 worker(s)'),
    (('', ['--backup-workers', -1]), '--backup-workers is -1'),
    (('', ['--distribute', 'multi_worker_mirrored']), 'needs a TF_CONFIG'),
    (
      ('', ['--distribute', 'mirrored']),
      'mirrored is gone since version 2: the devices of one host',
    ),
    ((CLUSTER, ALL_REDUCE), 'uses no parameter servers and TF_CONFIG lists 1'),
    ((WORKERS, []), 'cluster.ps is []'),
    ((WORKERS, [*ALL_REDUCE, '--stop-at-accuracy', 1]), 'needs an evaluator in a cluster'),
    ((WORKERS, [*ALL_REDUCE, '--backup-workers', 1]), 'leave --backup-workers 1 out'),
    (('', ['--start-timeout', 0]), '--start-timeout is 0'),
    (('', ['--evaluator-patience', -5]), '--evaluator-patience is -5'),
  ],
)
def test_refuses_a_cluster_that_cannot_run(monkeypatch, refusal, tmp_path, settings, message):
  config, flags = settings
  monkeypatch.setenv('TF_CONFIG', config)
  assert message in refusal(tmp_path / 'job', *flags)
  assert not (tmp_path / 'job').exists()


def test_the_first_process_of_a_container_hears_sigterm(tmp_path):
  """Linux keeps from it what it has no handler for, so that `docker stop` would have to kill it."""
  module = tmp_path / 'sleeping.py'
  module.write_text(
    'import sys, time\ndef main():\n  print("up", file=sys.stderr)\n  time.sleep(60)\n'
  )
  code = """if True:
    import os
    os.getpid = lambda: 1
    from cifar10.core.errors import run_process
    run_process('sleeping')
  """
  environment = {**os.environ, 'PYTHONPATH': f'{tmp_path}{os.pathsep}{checkout.ROOT}'}
  command = [sys.executable, '-c', code]
  with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
    assert process.stderr.readline() == 'up\n'
    process.terminate()
    assert process.wait(50) == 143  # -15 without a handler.
