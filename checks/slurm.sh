#!/usr/bin/env bash
# A real Slurm with one node on this machine (Debian packages slurm-wlm and munge, as root), and mini shards through it.
#   checks/slurm.sh [python]
# Slurm's files go to a temporary folder, but for /etc/slurm/slurm.conf, which jobs look for and which must not be there
# before. At the end that file is removed and the daemons started here, and only these, are ended.
set -euo pipefail
cd "$(dirname "$0")/.."
python="$(realpath -s "${1:-.venv/bin/python}")"
conf=/etc/slurm/slurm.conf
[ ! -e "$conf" ] || { echo "$conf is there already: this machine has a Slurm of its own" >&2; exit 1; }
folder="$(mktemp -d)"
chmod 755 "$folder"
mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
pids=()
trap 'tail -n 30 "$folder"/checkout/.snakemake/slurm_logs/*/*.log' ERR
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder" "$conf" "$(dirname "$conf")/gres.conf"' EXIT

host="$(hostname -s)"
# munge's own checks want a folder that belongs to it alone
head -c 1024 /dev/urandom >"$folder/munge/munge.key"
chmod 700 "$folder/munge" && chmod 400 "$folder/munge/munge.key"
munged --foreground --force --key-file "$folder/munge/munge.key" --socket "$folder/munge/socket" \
  --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" --seed-file "$folder/munge/seed" &
pids+=($!)

mkdir -p "$(dirname "$conf")"
cat >"$conf" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=${SLURMCTLD_PORT:-16817}
SlurmdPort=${SLURMD_PORT:-16818}
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MinJobAge=120
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo) Gres=gpu:1 State=UNKNOWN
PartitionName=check Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
# a GPU in name only, so that what rules ask for is really allocated
gres="$(dirname "$conf")/gres.conf"
echo "NodeName=$host Name=gpu File=/dev/zero" >"$gres"
for _ in $(seq 50); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
slurmctld -D & pids+=($!)
slurmd -D & pids+=($!)
for _ in $(seq 100); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.2; done
sinfo

# the tiny study through profiles/slurm: every job by sbatch, inference with the GPU that it asks for
mkdir "$folder/checkout"
git ls-files -z | xargs -0 cp --parents -t "$folder/checkout"
cd "$folder/checkout"
"$python" -m snakemake results/logits/llava15/random.parquet --workflow-profile profiles/slurm \
  --slurm-status-command squeue --slurm-no-account --slurm-init-seconds-before-status-checks 2 --jobs 2 \
  --latency-wait 10 --default-resources slurm_partition=check mem_mb=900 runtime=10 \
  --set-resources infer_shard:gpu=1 infer_shard:mem_mb=1500 infer_shard:runtime=10 \
  --configfile tests/workflow/tiny.yaml 2>&1 | tee "$folder/run.log"
test -s results/logits/llava15/random.parquet
submitted="$(grep -c "has been submitted with SLURM jobid" "$folder/run.log")"
echo "$submitted jobs went through Slurm; $(scontrol show jobs | grep -c "Tres.*=gres:gpu") of them with a GPU"
[ "$submitted" -eq 7 ]
[ "$(scontrol show jobs | grep -c "Tres.*=gres:gpu")" -eq 2 ]
