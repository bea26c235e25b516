"""Writes an included trained network into a job dir."""

import os
import threading

from cifar10.core import files
from cifar10.job import job_config, pretrained, variable_files
from cifar10.options.run_options import RunOptions

_unpacking = threading.Lock()  # A server's threads may load a network at the same time.


def unpack(options: RunOptions) -> None:
  """Writes the network that `as_job` has accepted into its job dir, unless it is there."""
  assert options.pretrained
  with _unpacking:
    if files.exists(os.path.join(options.job_dir, 'checkpoint')):
      return
    # By its path: a folder of the user's may have the network's name.
    path = pretrained.path(options.pretrained) + '.npz'
    source = variable_files.open_source(path, '--pretrained')
    step = source.global_step
    values = {each: source.value(each) for each in source.shapes}
    checkpoint = os.path.join(options.job_dir, f'model.ckpt-{step}')
    job_config.write_config(options.job_dir, pretrained.config(options.pretrained))
    if not files.exists(checkpoint + '.index'):  # A process that was killed may have come this far.
      variable_files.write(checkpoint, values, step, '--job-dir')
    latest = f'model_checkpoint_path: "model.ckpt-{step}"\n'
    files.write_text(os.path.join(options.job_dir, 'checkpoint'), latest)
