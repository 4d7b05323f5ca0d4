#!/usr/bin/env bash
# Time the dry run of the full study's Table 4 (aim: below 5 seconds) against the bare start of snakemake.
set -euo pipefail
cd "$(dirname "$0")/.."
TIMEFORMAT="%R s"
echo -n "snakemake --version   "; time snakemake --version > /dev/null
echo -n "dry run of full study "; time snakemake --dry-run --quiet --cores 1 results/full/tables/table4.csv --configfile workflow/studies/full.yaml > /dev/null 2>&1
