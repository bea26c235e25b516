"""The examples of a run: those to train on, and those held out for evaluations."""

from cifar10.data import input_pipeline
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.data.python_source import PythonSource
from cifar10.job.run import Run

Examples = Cifar10DataSet | PythonSource


def training_examples(run: Run) -> Examples:
  """Returns the examples to train on; raises InputError if a source cannot be found."""
  hparams = run.hparams
  if not hparams.source:
    return Cifar10DataSet(
      run.data_dir,
      hparams.train_on,
      hparams.use_distortion_for_training,
      augmentation=hparams.augmentation,
    )
  return PythonSource(
    '--source',
    hparams.source,
    run.data.num_classes,
    num_workers=run.cluster.num_workers,
    examples_per_epoch=hparams.examples_per_epoch,
    augmentation=hparams.augmentation if hparams.use_distortion_for_training else None,
  )


def held_out(run: Run, subset: str) -> Examples:
  """Returns a subset's examples: of its records, or of --validation-source.

  Raises:
    InputError: the subset is missing or damaged, or a batch does not fit into the memory.
  """
  source = run.hparams.validation_source
  found: Examples = Cifar10DataSet(run.data_dir, subset)
  if subset == 'validation' and source:
    found = PythonSource('--validation-source', source, run.data.num_classes, examples_per_epoch=0)
  count = found.num_examples_per_epoch()
  input_pipeline.check_memory(min(count, run.hparams.eval_batch_size), '--eval-batch-size')
  return found
