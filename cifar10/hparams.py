"""Every hyper-parameter and every option of a run once, with its unit or reason; the recipes."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True)
class HParams:
  """What is trained, and how. Defaults are the old program's, except where a reason says not."""

  # The network: a job dir belongs to one.
  network: str = 'resnet'  # or fastnet
  num_layers: int = 44  # of a resnet: 6n+2, or 9n+2 with bottleneck
  resnet_version: int = 1  # 1: conv, bn, relu; 2: bn, relu, conv
  bottleneck: bool = False  # 1x1, 3x3, 1x1 blocks; version 2 only
  widths: tuple[int, ...] = (64, 256, 256)  # channels of a fastnet's groups
  convs_per_group: int = 2  # of a fastnet; from 3 on, with a shortcut
  # The data: a job dir belongs to one split, too.
  train_on: str = 'train'  # or train+validation, the 50,000 of published results
  # The optimization.
  train_steps: int = 80_000  # global steps in all, over every run in the job dir
  train_batch_size: int = 128  # examples a step, all towers of a worker together
  eval_batch_size: int = 100  # examples; changes speed, not results
  learning_rate: float = 0.1  # multiplies the schedule
  lr_values: tuple[float, ...] = (1.0, 0.1, 0.01, 0.002)  # times learning_rate, one a phase
  lr_boundaries_epochs: tuple[float, ...] = (82, 123, 300)  # epochs at which a phase ends
  lr_boundaries_steps: tuple[int, ...] = ()  # the same in global steps; empty: use the epochs
  lr_triangle: tuple[float, ...] = ()  # instead of phases: first factor, when it is 1, last factor
  momentum: float = 0.9  # of SGD
  nesterov: bool = False  # Nesterov's momentum, not plain
  weight_decay: float = 2e-4  # L2 on every trainable variable, as half the sum of squares
  offset_lr_factor: float = 1.0  # batch-norm offsets learn so much faster, and decay less by it
  head_lr_factor: float = 1.0  # the same for the fully connected layer
  first_bias_steps: int = 0  # global steps for which a fastnet's first bias learns; 0: all
  muon_learning_rate: float = 0.0  # convolution kernels by Muon, and not by SGD; 0: no Muon
  muon_momentum: float = 0.6
  label_smoothing: float = 0.0  # of the target, spread evenly over the classes
  lookahead_steps: int = 0  # between two meetings of fast and slow variables; 0: no lookahead
  use_distortion_for_training: bool = True  # random crop and mirror, and what follows
  crop_padding: int = 4  # pixels on each side before a crop
  padding_mode: str = 'zeros'  # or reflect
  flip: str = 'random'  # or alternating: mirrored every other epoch
  cutout: int = 0  # pixels: the side of a square that is blanked
  batch_norm_decay: float = 0.997  # what a moving average keeps of itself a step
  batch_norm_epsilon: float = 1e-5  # added to the variance
  dtype: str = 'float32'  # of activations and kernels at use; auto: what the hardware is fast at
  tta: str = 'none'  # views of a test image whose logits are averaged
  seed: int = 0  # of initial values, order and distortions


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """Where a job runs and what it keeps. Of what is learned, only how workers share it is here."""

  job_dir: str  # checkpoints, summaries, exports
  data_dir: str | None = None  # record files; predict and export need none
  subset: str | None = None  # the split to evaluate; None: validation on the way, eval at the end
  checkpoint: str | None = None  # to evaluate, predict with or export; None: the latest
  num_gpus: int | None = None  # towers on GPUs; None: as many as are visible
  num_cpu_towers: int = 1  # towers on virtual CPUs, where there is no GPU
  variable_strategy: str = 'CPU'  # or GPU: spread over the GPUs by size
  data_format: str | None = None  # channels_first or channels_last; None: by device
  num_intra_threads: int = 0  # in an operation; 0: all cores
  num_inter_threads: int = 0  # between operations; 0: all cores
  log_device_placement: bool = False
  eval_every_steps: int = 1000  # global steps
  save_every_steps: int | None = None  # global steps; None: when evaluating
  keep_checkpoints: int = 5
  distribute: str | None = None  # mirrored or multi_worker_mirrored: all-reduce, by tf.distribute
  sync: bool = False  # an update from every worker's gradient; one process ignores it
  backup_workers: int = 0  # with sync: an update needs so many gradients less
  start_timeout: float = 600  # seconds for a cluster's tasks to come up
  evaluator_patience: float = 600  # seconds an evaluator waits for a chief that is gone
  num_workers: int = 1  # ignored: the cluster says how many


# What a checkpoint only fits, or a result only means, when it stays the same.
NETWORK_FIELDS = (
  'network',
  'num_layers',
  'resnet_version',
  'bottleneck',
  'widths',
  'convs_per_group',
)
FIXED_FIELDS = (*NETWORK_FIELDS, 'train_on')
# Zero or not: that decides which variables an optimizer keeps.
OPTIMIZER_SWITCHES = ('muon_learning_rate', 'lookahead_steps')


class Recipe(NamedTuple):
  """Defaults that belong together, and what they lead to."""

  accuracy: str  # on the test set
  cost: str
  defaults: Mapping[str, Any]  # of HParams' fields


_PUBLISHED = {'train_on': 'train+validation'}

RECIPES: dict[str, Recipe] = {
  'classic': Recipe('not measured', '80,000 steps of 128 images, of 40,000', {}),
  # He et al. 2015, 'Deep Residual Learning', section 4.2.
  'he2015': Recipe(
    '91.62 % with --num-layers 20 --dtype bfloat16 (n = 1; the paper: 91.25 %); 92.83 % with 44 '
    'and 93.03 % with 56 in the paper',
    '64,000 steps of 128 images; with --num-layers 20 2.5 hours on two cores with AVX-512 BF16',
    {
      **_PUBLISHED,
      'train_steps': 64_000,
      'lr_values': (1.0, 0.1, 0.01),
      'lr_boundaries_steps': (32_000, 48_000),
      'weight_decay': 1e-4,
    },
  ),
}

# Jordan 2024, '94% on CIFAR-10 in 3.29 Seconds on a Single GPU' (arXiv 2404.00498), and airbench.
_FAST = {
  **_PUBLISHED,
  'network': 'fastnet',
  'eval_batch_size': 200,
  'nesterov': True,
  'momentum': 0.85,
  'label_smoothing': 0.2,
  'crop_padding': 2,
  'padding_mode': 'reflect',
  'flip': 'alternating',
  'batch_norm_decay': 0.6,
  'batch_norm_epsilon': 1e-12,
  'dtype': 'auto',
  'tta': 'mirror+shift',
}

# airbench94 with Muon, in smaller batches: more steps from as many images.
RECIPES['fast94'] = Recipe(
  '94.11 % (the mean of 3 seeds: 94.01, 94.10, 94.21)',
  '9 epochs: 450 steps of 1,000 images, 17 minutes on two cores with AVX-512 BF16',
  {
    **_FAST,
    'train_batch_size': 1000,
    'train_steps': 450,
    'learning_rate': 53.0,
    'lr_triangle': (0.0, 0.0, 0.0),
    'weight_decay': 3.8e-5,
    'offset_lr_factor': 2.9,  # 1.702^2: batch norm multiplies by 1.702, which offsets are added to.
    'first_bias_steps': 150,
    'head_lr_factor': 12.6,
    'muon_learning_rate': 0.17,
  },
)
# SGD and lookahead, as airbench95 and airbench96 have them. Their logits are divided by 9, ours by
# the last width, and batch norm multiplies by 1.702: factors of the squares make the same steps.
_FAST_SGD = {
  **_FAST,
  'train_batch_size': 1024,
  'offset_lr_factor': 64 * 2.9,
  'first_bias_steps': 146,
  'lookahead_steps': 5,
}
RECIPES['fast95'] = Recipe(
  '95.01 % (the source); not measured here',
  '15 epochs',
  {
    **_FAST_SGD,
    'widths': (128, 384, 384),
    'train_steps': 732,
    'learning_rate': 1.304,
    'lr_triangle': (0.2, 0.23, 0.07),
    'weight_decay': 1.53e-3,
    'head_lr_factor': (384 / 9) ** 2,
  },
)
RECIPES['fast96'] = Recipe(
  '96.03 % (the source); not measured here',
  '37 epochs',
  {
    **_FAST_SGD,
    'widths': (128, 384, 512),
    'convs_per_group': 3,
    'train_steps': 1807,
    'learning_rate': 1.174,
    'lr_triangle': (0.2, 0.1, 0.0),
    'weight_decay': 1.333e-3,
    'head_lr_factor': (512 / 9) ** 2,
    'crop_padding': 4,
    'cutout': 12,
    'batch_norm_decay': 0.9,
  },
)


def from_recipe(name: str, given: Mapping[str, Any]) -> HParams:
  """A recipe's hyper-parameters, but those that were given.

  Where one says of the learning rate what another field of the recipe says otherwise, the one that
  was given holds.
  """
  chosen = {**RECIPES[name].defaults, **given}
  phases = {'lr_values', 'lr_boundaries_epochs', 'lr_boundaries_steps'}
  if phases & set(given) and 'lr_triangle' not in given:
    chosen.pop('lr_triangle', None)
  if 'lr_boundaries_epochs' in given and 'lr_boundaries_steps' not in given:
    chosen.pop('lr_boundaries_steps', None)
  return HParams(**chosen)
