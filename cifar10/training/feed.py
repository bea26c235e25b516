"""Selects where training examples come from: record files or a Python function."""

from cifar10.cluster.tasks import Cluster
from cifar10.data.info import DatasetInfo
from cifar10.data.input_pipeline import RecordDataset
from cifar10.data.python_source import PythonSource
from cifar10.options.hparams import HParams

Examples = RecordDataset | PythonSource


def training_examples(
  hparams: HParams, data_dir: str, cluster: Cluster, data: DatasetInfo
) -> Examples:
  """Returns the examples to train on; raises InputError if a source cannot be found."""
  if not hparams.source:
    return RecordDataset(
      data_dir, hparams.train_on, hparams.use_distortion_for_training, hparams.augmentation
    )
  return PythonSource(
    '--source',
    hparams.source,
    data.num_classes,
    num_workers=cluster.num_workers,
    examples_per_epoch=hparams.examples_per_epoch,
    augmentation=hparams.augmentation if hparams.use_distortion_for_training else None,
  )
