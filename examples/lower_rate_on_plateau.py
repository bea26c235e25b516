"""A tenth of the learning rate after some evaluations in a row without a better one:

PYTHONPATH=examples python cifar10_main.py --callback lower_rate_on_plateau:LowerRate ...
"""

import cifar10


class LowerRate(cifar10.Callback):
  def __init__(self, run, patience=2):
    self.run, self.patience = run, patience
    self.best = self.waited = self.rate = 0

  def on_step_end(self, step):
    self.rate = float(step.values['learning_rate'])

  def on_evaluate_end(self, evaluation):
    # The test set chooses nothing, and an evaluator of a cluster has no learning rate.
    if not (evaluation.chooses and self.run.is_chief):
      return
    accuracy = evaluation.result['accuracy']
    self.waited = 0 if accuracy > self.best else self.waited + 1
    self.best = max(self.best, accuracy)
    if self.waited >= self.patience:
      self.waited = 0
      self.run.set_rate(self.rate / 10)  # A resumed job keeps it.
