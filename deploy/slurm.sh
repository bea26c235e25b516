#!/usr/bin/env bash
# A chief, a worker, a parameter server and an evaluator on four nodes, until training is over:
#   sbatch --time=4:00:00 deploy/slurm.sh DATA JOB [FLAGS]
#
# Submit it from the project's folder. DATA and JOB are folders that all nodes share. Rank 0 is the
# chief; workers follow, then NUM_PS parameter servers and, unless EVALUATOR=0, an evaluator.
# docs/clusters.md says more.
#SBATCH --job-name=cifar10
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
data=$1 job=$2
shift 2
export NUM_PS=${NUM_PS:-1} EVALUATOR=${EVALUATOR:-1} PYTHON=${PYTHON:-python}
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export HOSTS
saved() { cat "$job/checkpoint" 2>/dev/null || true; }  # TensorFlow's list of checkpoints.
before=$(saved)
code=0
# Since Slurm 22.05 srun no longer takes --cpus-per-task from sbatch.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# In each task: srun sets SLURM_PROCID, and cyclic distribution takes turns over the nodes. No task's
# end makes Slurm kill the others, for SIGKILL would take the chief's last steps. SIGTERM, from
# Slurm at the time limit or from a task that failed, ends each within 20 s; the chief saves.
srun --distribution=cyclic --kill-on-bad-exit=0 --wait=0 bash -c '
  trap : TERM  # Slurm sends it to this shell as well as to the program, whose code is awaited.
  run() {
    TF_CONFIG=$("$PYTHON" deploy/slurm_environment.py) || return 2
    export TF_CONFIG
    task=$(sed -E "s/.*\"type\": \"(.*)\", \"index\": (.*)}}/\1 \2/" <<< "$TF_CONFIG")
    "$PYTHON" cifar10_main.py "$@" 2> >(label "$task: " >&2)
  }
  label() {  # Until the program has said its last line.
    trap "" TERM
    exec sed -u "s/^/$1/"
  }
  code=0
  run "$@" || code=$?
  if [ "$code" != 0 ] && [ "$code" != 143 ]; then
    echo "error: ${task:-rank $SLURM_PROCID} ended with code $code; ending the others" >&2
    trap "" TERM  # scancel is in this step, too.
    scancel --signal=TERM "$SLURM_JOB_ID.$SLURM_STEP_ID" || true
  fi
  exit "$code"
' task --data-dir "$data" --job-dir "$job" "$@" || code=$?
[ "$code" = 0 ] && exit
# Each start must get further than the last, so that what fails at once is not repeated forever.
if [ "$(saved)" = "$before" ]; then
  echo "error: ended with code $code, and nothing was saved since the start; giving up" >&2
  exit "$code"
fi
echo "ended with code $code before the last step; asking Slurm to start this job again" >&2
scontrol requeue "$SLURM_JOB_ID"
sleep 600  # Until Slurm ends this script.
