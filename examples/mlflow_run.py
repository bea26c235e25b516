"""A training as a run of MLflow, in the folder `runs`: parameters, curves and the export.

pip install '.[companions]'
PYTHONPATH=. python examples/mlflow_run.py   # In a folder with data/.

To look at it takes the whole of MLflow, in an environment of its own: `pip install mlflow`, then
`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri file:runs`.
"""

import os

import mlflow

import cifar10


class Curves(cifar10.Callback):
  def on_step_end(self, step):
    if step.step % 20 == 0:
      mlflow.log_metrics({'loss': float(step.values['loss'])}, step.step)

  def on_evaluate_end(self, evaluation):
    accuracy, split = evaluation.result['accuracy'], evaluation.split
    mlflow.log_metrics({f'{split}_accuracy': accuracy}, evaluation.step)


options = {'num_layers': 8, 'train_steps': 200, 'eval_every_steps': 50}
os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'  # In place of a database.
mlflow.set_tracking_uri('file:runs')
with mlflow.start_run() as run:
  mlflow.log_params(options)
  cifar10.train('tracked', 'data', callbacks=[Curves()], **options)
  mlflow.log_artifacts(cifar10.export('tracked')['saved_model'], 'saved_model')
