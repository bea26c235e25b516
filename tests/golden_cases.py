"""The commands of tests/goldens.py, which 0872a1f and this checkout come to the same with."""

import typing


class Case(typing.NamedTuple):
  """One command, in which {job}, {data}, {jobs}/NAME, {old} and {photos} stand for folders.

  {jobs}/NAME is the job dir of another case as 0872a1f left it, {old} its checkout.
  """

  command: str
  start: str = ''  # The folder of which the job dir is first a copy.
  like: str = ''  # The case to whose outcome this one comes, in place of one of its own.
  before: str = ''  # A shell command that is run first.
  quick: bool = False


THREADS = '--num-intra-threads 1 --num-inter-threads 1'
FLAGS = f'--data-dir {{data}} --job-dir {{job}} --eval-batch-size 50 {THREADS}'
EVALUATE = f'cifar10_main.py {FLAGS} --mode evaluate'
TRAIN = f'{FLAGS} --seed 3 --deterministic --train-steps 20 --train-batch-size 32'
MAIN = f'cifar10_main.py {TRAIN}'
RESNET8 = f'{MAIN} --num-layers 8'
JOB = f'cifar10_main.py --job-dir {{job}} {THREADS}'
GENERATE = 'generate_cifar10_tfrecords.py --data-dir {job}'
CLUSTER = '-m cifar10.local_cluster --ps 1 --workers'
CLASSIC, FAST94 = '{jobs}/classic-float32', '{jobs}/fast94-float32'
OLD_JOBS = '{old}/tests/jobs_of_e632993'
FLAGS_OF_OLD_JOBS = {'resnet8': '', 'fastnet': '--recipe fast94 --dtype float32'}

CASES = {
  'records': Case(f'{GENERATE} --synthetic 100', quick=True),
  'records-seed': Case(f'{GENERATE} --synthetic 30 --seed 5'),
  'records-cifar100': Case(f'{GENERATE} --synthetic 30 --dataset cifar100'),
  'records-coarse': Case(f'{GENERATE} --synthetic 30 --dataset cifar100 --labels coarse'),
  'records-photos': Case(f'{GENERATE} --images {{photos}} --split 0.5,0.25,0.25'),
  'records-published': Case(f'{GENERATE} --archive $CIFAR10_ARCHIVE'),
}

# Recipes, whose networks are made small.
RECIPES = {
  'classic': '--num-layers 8',
  'he2015': '--num-layers 8',
  'fast94': '--widths 24,32,32',
  'fast95': '--widths 24,32,32',
  'fast96': '--widths 24,24,32 --proxy-widths 24,24,24',
  'wrn-28-10': '--wrn-depth 10 --wrn-widen-factor 1',
  'vgg16': '--vgg-layers 11 --train-steps 5',
}
CASES |= {
  f'{recipe}-{dtype}': Case(
    f'{MAIN} --recipe {recipe} --dtype {dtype} {small}',
    quick=f'{recipe}-{dtype}' in ('classic-float32', 'fast94-bfloat16'),
  )
  for recipe, small in RECIPES.items()
  for dtype in ('float32', 'bfloat16')
}

# Options, each with ResNet-8 where there is no other network.
OPTIONS = {
  'two-towers': '--num-cpu-towers 2',
  'two-towers-fast94': f'--recipe fast94 {RECIPES["fast94"]} --dtype float32 --num-cpu-towers 2',
  'two-towers-fast96': f'--recipe fast96 {RECIPES["fast96"]} --dtype float32 --num-cpu-towers 2',
  'three-evaluations': '--eval-every-steps 8 --keep-best 2',
  'saves': '--save-every-steps 4 --keep-checkpoints 3',
  'rate-in-a-triangle': '--lr-triangle 0.2,0.3,0.1',
  'stop-at-accuracy': '--stop-at-accuracy 0.01 --eval-every-steps 8',
  'stop-without-gain': '--stop-without-gain 1 --eval-every-steps 4 --learning-rate 1e-9',
  'train-only': '--mode train',
  'all-images': '--train-on train+validation',
  'ema': '--ema-decay 0.9 --use-ema',
  'lookahead': '--lookahead-steps 5',
  'ema-lookahead-muon': '--ema-decay 0.9 --lookahead-steps 5 --muon-learning-rate 0.02',
  'muon': '--muon-learning-rate 0.02 --nesterov',
  'nesterov': '--nesterov --momentum 0.8 --weight-decay 0.01',
  'factors': '--head-lr-factor 3 --offset-lr-factor 2',
  'freeze': "--freeze 'resnet/(init|stage1)'",
  'warm-start': f"--warm-start-from {CLASSIC} --seed 4 --freeze 'init'",
  'warm-start-pretrained': '--warm-start-from resnet20 --num-layers 20',
  'label-smoothing': '--label-smoothing 0.2',
  'cutout-reflect': '--cutout 8 --padding-mode reflect --crop-padding 3',
  'alternating-flip': '--flip alternating',
  'no-distortion': '--use-distortion-for-training False',
  'batch-norm': '--batch-norm-decay 0.8 --batch-norm-epsilon 0.01',
  'tta': '--tta mirror+8shifts --tta-below 0.5',
  'pre-activation': '--resnet-version 2',
  'bottleneck': '--resnet-version 2 --bottleneck --num-layers 11',
  'own-source': '--source goldens:some_examples --examples-per-epoch 40',
  'own-network': '--network goldens:small_network',
}
for name, flags in OPTIONS.items():
  layers = '' if '--network' in flags or '--recipe' in flags else '--num-layers 8'
  CASES[name] = Case(f'{MAIN} {layers} {flags}', quick=name == 'two-towers')
EPOCHS = '--train-epochs 1.5 --lr-boundaries-epochs 0.5,1,1.2'
CASES['epochs'] = Case(f'{RESNET8} {EPOCHS}'.replace('--train-steps 20', ''))

# Clusters: a chief with so many workers, and a parameter server.
SYNC = f'{CLUSTER} 1 -- {TRAIN} --num-layers 8 --sync'
CASES |= {
  'sync': Case(SYNC, quick=True),
  'sync-fast94': Case(f'{CLUSTER} 1 -- {TRAIN} --recipe fast94 {RECIPES["fast94"]} --sync'),
  'sync-two-towers': Case(f'{SYNC} --num-cpu-towers 2 --ema-decay 0.9 --muon-learning-rate 0.02'),
  'sync-evaluator': Case(SYNC.replace('--ps 1', '--ps 1 --evaluator')),
  'sync-half': Case(f'{SYNC} --train-steps 10'),
  'sync-resumed': Case(SYNC, start='{jobs}/sync-half', like='sync'),
  'async': Case(f'{CLUSTER} 0 -- {TRAIN.replace("--deterministic", "")} --num-layers 8'),
  'all-reduce': Case(f'{SYNC} --distribute multi_worker_mirrored'.replace('--ps 1', '--ps 0')),
}

# 10 steps of 0872a1f, and 10 of this checkout. A triangle of rates depends on the last step.
CASES |= {
  'half': Case(f'{RESNET8} --train-steps 10'),
  'resumed': Case(RESNET8, start='{jobs}/half', like='classic-float32', quick=True),
}
LATEST = 'model_checkpoint_path: "model.ckpt-10"'
CUT = f"rm {{job}}/model.ckpt-20.*; echo '{LATEST}' > {{job}}/checkpoint"
for name in ('fast94-bfloat16', 'fast96-float32', 'two-towers', 'ema-lookahead-muon'):
  line, saved = CASES[name].command, f'{name}-saved'
  CASES[saved] = Case(f'{line} --save-every-steps 10')
  CASES[f'{name}-resumed'] = Case(line, start=f'{{jobs}}/{saved}', like=name, before=CUT)

# What 0872a1f has trained, and e632993.
CASES |= {
  'evaluate': Case(EVALUATE, start=CLASSIC, quick=True),
  'evaluate-best': Case(f'{EVALUATE} --checkpoint best --subset validation', start=CLASSIC),
  'evaluate-towers': Case(f'{EVALUATE} --num-cpu-towers 2', start=FAST94),
  'evaluate-ema': Case(f'{EVALUATE} --use-ema', start='{jobs}/ema'),
  'predict': Case(f'{JOB} --mode predict --images {{photos}}/a', start=CLASSIC, quick=True),
  'predict-tta': Case(f'{JOB} --mode predict --images {{photos}}/b', start=FAST94),
  'predict-pretrained': Case(
    f'cifar10_main.py --pretrained resnet20 --mode predict --images {{photos}}/a {THREADS}'
  ),
  'export': Case(f'{JOB} --mode export', start=CLASSIC),
  'export-tta': Case(f'{JOB} --mode export', start=FAST94),
  'export-bfloat16': Case(f'{JOB} --mode export', start='{jobs}/vgg16-bfloat16'),
  'average': Case(
    f'-m cifar10.checkpoint average {CLASSIC} {CLASSIC}/model.ckpt-0 --job-dir {CLASSIC}'
    ' --data-dir {data} --out {job}/model.ckpt-20'
  ),
}
# The job dirs of e632993 were trained on other records, which they know by their digests.
OTHER_DATA = """sed -i -z 's/,\\n  "data": {{[^}}]*}}//' {job}/config.json"""
for name, flags in FLAGS_OF_OLD_JOBS.items():
  for what, line in {
    'evaluate': EVALUATE,
    'predict': f'{JOB} --mode predict --images {{photos}}/a',
    'export': f'{JOB} --mode export',
    'resumed': f'{MAIN} {flags}',
  }.items():
    before = OTHER_DATA if what == 'resumed' else ''
    CASES[f'e632993-{name}-{what}'] = Case(line, start=f'{OLD_JOBS}/{name}', before=before)

# It goes on from the checkpoint before the one that is cut.
CASES['damaged-latest'] = Case(
  RESNET8, start=CLASSIC, before='truncate --size 1000 {job}/model.ckpt-20.data*'
)
