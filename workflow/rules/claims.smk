"""
Needs: the tables in which this study recomputes claims (column settled_by); in a study that is never compared with the
papers nothing, because each claim is then "not in this study".
Makes: <results>/claims.csv, the ledger; <results>/numbers/{claim}.json, any single claim; `snakemake ledger` prints
the tally.
"""

from workflow.lib.claims import LEDGER, REASONS, load as load_claims, tables_needed
from workflow.lib.files import sha256

CLAIMS = {claim.claim: claim for claim in load_claims()}


rule check_claims:
    input:
        tables=[f"<results>/{name}" for name in tables_needed(CLAIMS.values(), STUDY)],
    output:
        ledger="<results>/claims.csv",
    log:
        "<results>/logs/check_claims.log",
    benchmark:
        "<results>/benchmarks/check_claims.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        claims=[sha256(LEDGER), sha256(REASONS)],
        code=code_digest("check_claims"),
    script:
        "../scripts/check_claims.py"


rule check_number:
    input:
        tables=lambda wildcards: [f"<results>/{name}" for name in tables_needed([CLAIMS[wildcards.claim]], STUDY)],
    output:
        number="<results>/numbers/{claim}.json",
    log:
        "<results>/logs/check_number/{claim}.log",
    benchmark:
        "<results>/benchmarks/check_number/{claim}.tsv"
    wildcard_constraints:
        claim="|".join(map(re.escape, CLAIMS)),
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        claim=lambda wildcards: vars(CLAIMS[wildcards.claim]),
        reasons=sha256(REASONS),
        code=code_digest("check_number"),
    script:
        "../scripts/check_number.py"


rule ledger:
    input:
        ledger="<results>/claims.csv",
    log:
        "<results>/logs/ledger.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        code=code_digest("ledger"),
    script:
        "../scripts/ledger.py"
