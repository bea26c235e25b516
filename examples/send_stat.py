"""Runs a shell command after each evaluation and when training ends:

SEND_STAT='mail -s "$CIFAR10_EVENT: $CIFAR10_ACCURACY" me' PYTHONPATH=examples \
  python cifar10_main.py --callback send_stat:SendStat ...

The command's environment has CIFAR10_EVENT (evaluate or end), CIFAR10_JOB_DIR, CIFAR10_STEP; of an
evaluation CIFAR10_ACCURACY, CIFAR10_LOSS, CIFAR10_SUBSET, CIFAR10_CHECKPOINT; of the end
CIFAR10_REASON and CIFAR10_MESSAGE.
"""

import os
import subprocess
import sys

import cifar10

SECONDS = 10  # After SIGTERM the training has 14 s in all.


class SendStat(cifar10.Callback):
  def __init__(self, run):
    self.run = run

  def on_evaluate_end(self, evaluation):
    shown = {name: evaluation.result[name] for name in ('accuracy', 'loss', 'subset', 'checkpoint')}
    self.send(event='evaluate', step=evaluation.step, **shown)

  def on_train_end(self, reason, message, step):
    self.send(event='end', step=step, reason=reason, message=message)

  def send(self, **values):
    named = {'job_dir': self.run.job_dir, **values}
    variables = {f'CIFAR10_{name.upper()}': str(value) for name, value in named.items()}
    command = os.environ['SEND_STAT']
    try:  # Standard output is for results.
      environment = {**os.environ, **variables}
      subprocess.run(command, shell=True, stdout=2, env=environment, timeout=SECONDS, check=True)
    except subprocess.SubprocessError as error:
      print('send_stat:', error, file=sys.stderr)
