"""Every hyper-parameter and every option of a run once, with its unit or reason."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class HParams:
  """What is trained, and how. Defaults are the old program's, except where a reason says not."""

  # The network: a job dir belongs to one.
  num_layers: int = 44  # 6n+2, or 9n+2 with bottleneck
  resnet_version: int = 1  # 1: conv, bn, relu; 2: bn, relu, conv
  bottleneck: bool = False  # 1x1, 3x3, 1x1 blocks; version 2 only
  # The data: a job dir belongs to one split, too.
  train_on: str = 'train'  # or train+validation, the 50,000 of published results
  # The optimization.
  train_steps: int = 80_000  # global steps in all, over every run in the job dir
  train_batch_size: int = 128  # examples a step, all towers of a worker together
  eval_batch_size: int = 100  # examples; changes speed, not results
  learning_rate: float = 0.1  # multiplies lr_values
  lr_values: tuple[float, ...] = (1.0, 0.1, 0.01, 0.002)  # times learning_rate, one a phase
  lr_boundaries_epochs: tuple[float, ...] = (82, 123, 300)  # epochs at which a phase ends
  lr_boundaries_steps: tuple[int, ...] = ()  # the same in global steps; empty: use the epochs
  momentum: float = 0.9  # of plain, not Nesterov, momentum
  weight_decay: float = 2e-4  # L2 on every trainable variable, as half the sum of squares
  use_distortion_for_training: bool = True  # pad 4, random crop, random mirror
  batch_norm_decay: float = 0.997  # what a moving average keeps of itself a step
  batch_norm_epsilon: float = 1e-5  # added to the variance
  dtype: str = 'float32'  # of activations and kernels at use; variables are float32 always
  seed: int = 0  # of initial values, order and distortions


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """Where a job runs and what it keeps: nothing here changes what is learned."""

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
NETWORK_FIELDS = ('num_layers', 'resnet_version', 'bottleneck')
FIXED_FIELDS = (*NETWORK_FIELDS, 'train_on')
