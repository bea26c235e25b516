"""A search for learning rate and weight decay with Optuna; bad trials end early, by a callback.

pip install '.[companions]'
PYTHONPATH=. python examples/optuna_search.py   # In a folder with data/.

On CIFAR-10 five of the eight trials ended after 50 steps (Optuna 5.0.0, TensorFlow 2.15.1).
"""

import optuna

import cifar10


class Reports(cifar10.Callback):
  def __init__(self, trial):
    self.trial = trial

  def on_evaluate_end(self, evaluation):
    if evaluation.chooses:  # The test set chooses nothing.
      self.trial.report(evaluation.result['accuracy'], evaluation.step)
      if self.trial.should_prune():
        raise optuna.TrialPruned


def accuracy(trial):
  job = f'trials/{trial.number}'  # Remove trials/ before another search: its jobs have ended.
  rate = trial.suggest_float('learning_rate', 0.003, 3, log=True)
  decay = trial.suggest_float('weight_decay', 1e-5, 1e-2, log=True)
  options = {'num_layers': 8, 'train_steps': 200, 'eval_every_steps': 50}
  options |= {'learning_rate': rate, 'weight_decay': decay}
  try:
    cifar10.train(job, 'data', callbacks=[Reports(trial)], **options)
  except cifar10.CallbackError as error:
    raise error.__context__ from None  # That the trial is pruned.
  except cifar10.InputError as error:  # The loss became NaN: another trial may do better.
    raise optuna.TrialPruned(str(error)) from None
  return cifar10.evaluate(job, 'data', subset='validation')['accuracy']


pruner, sampler = optuna.pruners.MedianPruner(3), optuna.samplers.TPESampler(seed=0)
study = optuna.create_study(direction='maximize', pruner=pruner, sampler=sampler)
study.optimize(accuracy, n_trials=8)
print(study.best_value, study.best_params)
