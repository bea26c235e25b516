"""Flags and commands of version 1 that version 2 does not have, and what takes their place.

They are refused by name during the whole of 2.x; in an old job's config.json they are ignored.
"""

_EXAMPLE = 'put the folder examples/ in PYTHONPATH'

# Flag -> the end of the sentence '--flag is gone since version 2: ...'.
FLAGS: dict[str, str] = {
  '--data-service': 'a --source can take examples from other machines: examples/remote_source.py',
  '--data-workers': 'a --source can take examples from other machines: examples/remote_source.py',
  '--best-by': 'best/ ranks by accuracy; metrics.jsonl has all numbers of each evaluation',
  '--debug-shell': f'--callback debug_shell:DebugShell opens a shell in a training; {_EXAMPLE}',
  '--eval-every-epochs': '--eval-every-steps takes epochs x examples / --train-batch-size',
  '--evaluator-patience': '--start-timeout is for evaluators, too',
  '--export-batch': 'runtimes fix it: python -m onnxruntime.tools.make_dynamic_shape_fixed',
  '--first-bias-steps': 'it is 10, a fifth of an epoch of the fast recipes',
  '--histograms': 'a callback may write them: tf.compat.v1.summary.histogram in on_graph',
  '--lr-boundaries-steps': '--lr-boundaries-epochs takes steps x --train-batch-size / examples',
  '--muon-momentum': 'it is 0.6',
  '--num-workers': 'leave it out; TF_CONFIG says how many there are',
  '--on-end': f'--callback send_stat:SendStat runs a command at the end; {_EXAMPLE}',
  '--on-evaluation': f'--callback send_stat:SendStat runs a command after each; {_EXAMPLE}',
  '--print-completion': 'shtab completes by the same parser: docs/support.md',
  '--profile-steps': "a --callback may return TensorFlow's ProfilerHook (docs/watching.md)",
  '--restart': 'the command again goes on from the checkpoint; Slurm and Kubernetes restart tasks',
  '--save-every-epochs': '--save-every-steps takes epochs x examples / --train-batch-size',
  '--source-processes': 'a --source can start processes itself: examples/parallel_source.py',
  '--vgg-dropout': 'a network of your own may drop, as examples/inception_v3.py does',
  '--warm-start-skip': '--warm-start-from takes an .npz file of the variables that you choose',
  '--wrn-dropout': 'a network of your own may drop, as examples/inception_v3.py does',
}

# Option of a training -> the value that changes nothing, in an old config.json.
LEARNING = {'lr_boundaries_steps': [], 'muon_momentum': 0.6, 'vgg_dropout': 0.0, 'wrn_dropout': 0.0}

# Request of `control` -> as for flags.
REQUESTS = {
  'pause': 'stop, and later go-on with the same command',
  'shell': f'start with --callback debug_shell:DebugShell; {_EXAMPLE}',
}

# Network -> the rest of the sentence.
NETWORKS = {
  'inception': 'is an example since version 2; give --network inception_v3:InceptionFamily, with '
  'the folder examples/ in PYTHONPATH'
}
