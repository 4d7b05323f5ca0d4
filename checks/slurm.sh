#!/usr/bin/env bash
# A real Slurm with one node on this machine (Debian packages slurm-wlm and munge, as root), and mini shards through it.
#   checks/slurm.sh [python]
# The Python needs envs/cpu.lock and envs/slurm.lock. Slurm's files go to a temporary folder, but for /etc/slurm/slurm.conf
# and gres.conf, which jobs look for. At the end, also after an error or a signal, these two are removed and the daemons
# started here, and only these, are ended. What a killed check (kill -9) left is removed by the next one.
set -euo pipefail
cd "$(dirname "$0")/.."
python="$(realpath -s "${1:-.venv/bin/python}")"
conf=/etc/slurm/slurm.conf
gres=/etc/slurm/gres.conf
mark="# written by checks/slurm.sh, process"
export SLURMCTLD_PORT="${SLURMCTLD_PORT:-16817}" SLURMD_PORT="${SLURMD_PORT:-16818}"

refuse() { echo "error: $1" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || refuse "checks/slurm.sh starts Slurm's daemons, which needs root: run it in a container."
for tool in munged slurmctld slurmd sbatch; do
  command -v "$tool" >/dev/null || refuse "$tool is missing: apt-get install --no-install-recommends slurm-wlm munge."
done
if [ -e "$conf" ]; then
  other="$(sed -n "s|^$mark ||p" "$conf")"
  [ -n "$other" ] || refuse "$conf is there already: this machine has a Slurm of its own, so check on another one."
  read -r owner daemons <<<"$other"
  ! kill -0 "$owner" 2>/dev/null || refuse "another checks/slurm.sh (process $owner) is running: wait until it ends."
  for pid in $(cat "$daemons" 2>/dev/null); do
    case "$(cat "/proc/$pid/comm" 2>/dev/null)" in munged | slurmctld | slurmd) kill "$pid" ;; esac
  done
  rm -rf "$(dirname "$daemons")" "$conf" "$gres"
  sleep 1
fi
for port in "$SLURMCTLD_PORT" "$SLURMD_PORT"; do
  ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null ||
    refuse "port $port is taken: set SLURMCTLD_PORT and SLURMD_PORT to free ones."
done

folder="$(mktemp -d)"
chmod 755 "$folder"
mkdir -p "$folder/state" "$folder/spool" "$folder/munge" "$(dirname "$conf")"
(set -o noclobber && echo "$mark $$ $folder/daemons" >"$conf") 2>/dev/null || refuse "$conf came up meanwhile: run again."
clean() {
  # Slurm's jobs are children of slurmd's children: they end first, while there is somebody to ask
  scancel --partition=check 2>/dev/null || true
  kill $(cat "$folder/daemons" 2>/dev/null) 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$folder" "$conf" "$gres"
}
trap clean EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'tail -n 30 "$folder"/checkout/.snakemake/slurm_logs/*/*/*.log "$folder"/slurm*.log 2>/dev/null || true' ERR

host="$(hostname -s)"
# munge's own checks want a folder that belongs to it alone
head -c 1024 /dev/urandom >"$folder/munge/munge.key"
chmod 700 "$folder/munge" && chmod 400 "$folder/munge/munge.key"
munged --foreground --force --key-file "$folder/munge/munge.key" --socket "$folder/munge/socket" \
  --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" --seed-file "$folder/munge/seed" &
echo $! >>"$folder/daemons"

cat >>"$conf" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$SLURMCTLD_PORT
SlurmdPort=$SLURMD_PORT
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
echo "NodeName=$host Name=gpu File=/dev/zero" >"$gres"
for _ in $(seq 50); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
slurmctld -D >"$folder/slurmctld.out" 2>&1 & echo $! >>"$folder/daemons"
slurmd -D >"$folder/slurmd.out" 2>&1 & echo $! >>"$folder/daemons"
for _ in $(seq 150); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.2; done
sinfo

# the tiny study: what shards are made from here, then every further job by sbatch through profiles/slurm, inference with
# the GPU that it asks for
mkdir "$folder/checkout"
git ls-files -z | xargs -0 cp --parents -t "$folder/checkout"
cd "$folder/checkout"
study=(--configfile tests/workflow/tiny.yaml)
"$python" -m snakemake results/checkpoints/llava15/checkpoint.json results/items/random.parquet --cores 2 --quiet \
  "${study[@]}"
# the plugin asks after 10 seconds, and 10 later each time that no job has ended
"$python" -m snakemake results/logits/llava15/random.parquet --workflow-profile profiles/slurm \
  --slurm-status-command squeue --slurm-no-account --slurm-init-seconds-before-status-checks 10 --jobs 2 \
  --latency-wait 10 --default-resources slurm_partition=check mem_mb=900 runtime=10 \
  --set-resources infer_shard:gpu=1 infer_shard:mem_mb=1500 infer_shard:runtime=10 \
  "${study[@]}" 2>&1 | tee "$folder/run.log"
test -s results/logits/llava15/random.parquet
submitted="$(grep -c "has been submitted with SLURM jobid" "$folder/run.log")"
gpus="$(scontrol show jobs | grep -c "Tres.*=gres:gpu")"
echo "$submitted jobs went through Slurm; $gpus of them with a GPU"
[ "$submitted" -eq 3 ] && [ "$gpus" -eq 2 ] || refuse "3 jobs, 2 of them with a GPU, were expected."
