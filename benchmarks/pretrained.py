"""Makes a trained network that comes with the program from a job.

  python benchmarks/pretrained.py resnet20 --job-dir JOB --data-dir DATA --command '...' \
    --commit COMMIT --chosen '...' --trained RESULT.json

It writes cifar10/pretrained/NAME.npz, the variables of JOB's last checkpoint in half precision, and
NAME.json: what they come from, and their accuracy in float32, of the whole test set and of its
first images, which the tests have time for. tests/inference/test_pretrained.py runs the networks
through `accuracies` in every other way.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import commands
import numpy as np
import tensorflow as tf

import cifar10
from cifar10.core import cli
from cifar10.data import input_pipeline, manifest
from cifar10.job import pretrained, variable_files
from cifar10.options.run_options import PRETRAINED

FIRST = 1000  # Images.
OF_FIRST = f'accuracy_of_the_first_{FIRST}'
_BATCH = 500


def main() -> None:
  """Makes both files; prints the second, and the size of the first."""
  flags = _parser().parse_args()
  source = variable_files.open_source(flags.job_dir)
  values = {name: source.value(name).astype(np.float16) for name in source.shapes}
  path = pretrained.path(flags.name)
  np.savez_compressed(path + '.npz', global_step=np.int64(source.global_step), **values)
  with open(os.path.join(flags.job_dir, 'config.json'), encoding='utf-8') as file:
    config = json.load(file)
  with open(flags.trained, encoding='utf-8') as file:
    trained = json.loads(file.read().splitlines()[-1])
  record = {
    'config': config,
    'command': flags.command,
    'commit': flags.commit,
    'seed': config['seed'],
    'chosen': flags.chosen,
    'accuracy_of_the_training': trained['accuracy'],
  }
  _write(path, record)  # The evaluation reads the configuration there.
  with tempfile.TemporaryDirectory() as few:
    first_images(flags.data_dir, few)
    for key, data_dir in (('accuracy', flags.data_dir), (OF_FIRST, few)):
      record[key] = accuracies(flags.name, data_dir, ['float32'])['float32']
  _write(path, record)
  print(json.dumps({**record, 'bytes': os.path.getsize(path + '.npz')}))


def _write(path: str, record: dict[str, Any]) -> None:
  with open(path + '.json', 'w', encoding='utf-8') as file:
    json.dump(record, file, indent=2)
    file.write('\n')


def first_images(data_dir: str, folder: str) -> None:
  """Writes the first images of the test set into a folder; those of the other splits stay away."""
  content = manifest.read_manifest(data_dir)
  assert content is not None
  subset = content['subsets']['eval']
  with open(manifest.record_path(data_dir, 'eval'), 'rb') as file:
    records = file.read(subset['bytes'] // subset['examples'] * FIRST)  # All are of one size.
  with open(manifest.record_path(folder, 'eval'), 'wb') as file:
    file.write(records)
  subsets = {
    **content['subsets'],
    'eval': manifest.entry(manifest.record_path(folder, 'eval'), FIRST),
  }
  manifest.write_manifest(folder, {**content, 'subsets': subsets})


def accuracies(name: str, data_dir: str, ways: list[str] | None = None) -> dict[str, float]:
  """Returns the accuracy of a pretrained network on the test set, by the way of running it.

  Args:
    name: of the network.
    data_dir: record files of the published archive.
    ways: some of those below; default: all.
  """
  with tempfile.TemporaryDirectory() as job_dir:
    made: dict[str, Callable[[], float]] = {
      'float32': lambda: cifar10.evaluate(name, data_dir)['accuracy'],
      'bfloat16': lambda: cifar10.evaluate(name, data_dir, dtype='bfloat16')['accuracy'],
      'two towers': lambda: cifar10.evaluate(name, data_dir, num_cpu_towers=2)['accuracy'],
      'saved_model': lambda: _of_classes(data_dir, _saved_model(_exported(name, job_dir))),
      'onnx': lambda: _of_classes(data_dir, _onnx(_exported(name, job_dir, 'onnx'))),
      'keras': lambda: _of_classes(data_dir, _keras(_exported(name, job_dir, 'keras'))),
    }
    if _recorded(name)['config']['tta'] != 'none':
      del made['keras']  # A .keras file has no test-time augmentation.
    return {way: made[way]() for way in ways or made}


def _recorded(name: str) -> dict[str, Any]:
  with open(pretrained.path(name) + '.json', encoding='utf-8') as file:
    return json.load(file)


def _exported(name: str, job_dir: str, export_format: Any = 'saved_model') -> str:
  made: dict[str, Any] = {**cifar10.export(job_dir, pretrained=name, format=export_format)}
  return made[export_format]


def _saved_model(path: str) -> Callable[[np.ndarray], np.ndarray]:
  serve = tf.saved_model.load(path).signatures['serving_default']
  return lambda images: serve(images=tf.constant(images))['classes'].numpy()


def _onnx(path: str) -> Callable[[np.ndarray], np.ndarray]:
  import onnxruntime  # noqa: PLC0415

  session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
  return lambda images: session.run(['classes'], {'images': images})[0]


def _keras(path: str) -> Callable[[np.ndarray], np.ndarray]:
  model = tf.keras.models.load_model(path)
  return lambda images: model.predict(images, verbose=0).argmax(1)


def _of_classes(data_dir: str, classify: Callable[[np.ndarray], np.ndarray]) -> float:
  images, labels = input_pipeline.Cifar10DataSet(data_dir, 'eval').all_examples()
  batches = range(0, len(images), _BATCH)
  classes = np.concatenate([classify(np.asarray(images[i : i + _BATCH])) for i in batches])
  return float(np.mean(classes == np.asarray(labels)))


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('name', choices=PRETRAINED)
  for flag in ('--job-dir', '--data-dir', '--command', '--commit', '--chosen', '--trained'):
    parser.add_argument(flag, required=True)
  return parser


if __name__ == '__main__':
  cli.run_command(main)
