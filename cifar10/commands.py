"""The functions of the commands that `pip install .` creates; pyproject.toml names them."""

from functools import partial

from cifar10.core.errors import run_process

generate = partial(run_process, 'generate_cifar10_tfrecords')
train = partial(run_process, 'cifar10_main')
cluster = partial(run_process, 'cifar10.local_cluster')
report = partial(run_process, 'cifar10.report')
control = partial(run_process, 'cifar10.control')
checkpoint = partial(run_process, 'cifar10.checkpoint')
