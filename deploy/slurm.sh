#!/usr/bin/env bash
# A chief, a parameter server and two workers on four nodes: sbatch deploy/slurm.sh DATA JOB [FLAGS]
#
# DATA and JOB are folders that all nodes share. Rank 0 is the chief, the next NUM_PS ranks are
# parameter servers, the rest are workers.
#SBATCH --job-name=cifar10
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --signal=TERM@60
#SBATCH --requeue
set -euo pipefail
data=$1 job=$2
shift 2
export NUM_PS=${NUM_PS:-1} BASE_PORT=${BASE_PORT:-2222} PYTHON=${PYTHON:-python}
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export HOSTS
# In each task: srun sets SLURM_PROCID. Block distribution fills one node before the next.
srun --distribution=block --kill-on-bad-exit=1 bash -c '
  TF_CONFIG=$("$PYTHON" deploy/slurm_tf_config.py) && export TF_CONFIG
  exec "$PYTHON" cifar10_main.py "$@"
' task --data-dir "$data" --job-dir "$job" "$@"
