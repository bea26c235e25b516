"""A program as others have them: a premade Estimator on feature columns, exporters, TF_CONFIG."""

import argparse
import json

import numpy as np
import tensorflow as tf

import estimator_cluster

parser = argparse.ArgumentParser()
parser.add_argument('--model_dir')
parser.add_argument('--steps', type=int, help='without it, the last checkpoint is evaluated')
parser.add_argument('--patience', type=int, help='in seconds, of servers and evaluators that end')
args = parser.parse_args()
estimators, feature_column = tf.estimator, tf.feature_column


def input_fn():
  random = np.random.default_rng(0)
  age, town = random.random([64, 1], np.float32), random.choice(['Rome', 'Oslo'], [64, 1])
  label = ((age > 0.5) ^ (town == 'Oslo')).astype(np.int32)
  return tf.data.Dataset.from_tensor_slices(({'age': age, 'town': town}, label)).repeat(8).batch(16)


towns = feature_column.categorical_column_with_vocabulary_list('town', ['Rome', 'Oslo'])
columns = [feature_column.numeric_column('age'), towns]
config = estimators.RunConfig(args.model_dir, save_checkpoints_steps=10, tf_random_seed=1)
estimator = estimators.LinearClassifier(columns, config=config)
if args.steps:
  receiver_fn = estimators.export.build_parsing_serving_input_receiver_fn(
    feature_column.make_parse_example_spec(columns)
  )
  latest = estimators.LatestExporter('latest', receiver_fn)
  best = estimators.BestExporter('best', receiver_fn)
  train_spec = estimators.TrainSpec(input_fn, args.steps)
  eval_spec = estimators.EvalSpec(
    input_fn, None, exporters=[latest, best], start_delay_secs=0, throttle_secs=1
  )
  if args.patience:
    estimator_cluster.train_and_evaluate(estimator, train_spec, eval_spec, args.patience)
  else:
    estimators.train_and_evaluate(estimator, train_spec, eval_spec)
# In a folder of its own: BestExporter reads what an evaluator has written.
measured = estimator.evaluate(input_fn, name='last') if config.is_chief else {}
print(json.dumps({name: float(value) for name, value in measured.items()}))
