"""
Needs: <results>/statistics/corrections.csv and signal_tests.csv.
Makes: Tables 8 and 9 of the first paper, in the forms that tables.smk gives.
"""

SIGNAL_TABLES = ["table8", "table9"]


rule tabulate_table8:
    input:
        corrections="<results>/statistics/corrections.csv",
    output:
        csv=report(
            "<results>/tables/table8.csv",
            caption="../report/table8.rst",
            category="pope",
            labels={"exhibit": "Table 8", "file": "CSV"},
        ),
        md="<results>/tables/table8.md",
        tex="<results>/tables/table8.tex",
        sidecar="<results>/tables/table8.json",
    log:
        "<results>/logs/tabulate_table8.log",
    benchmark:
        "<results>/benchmarks/tabulate_table8.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **INSTRUMENTED,
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        variant=config["statistics"]["variant"],
        code=code_digest("tabulate_table8"),
    script:
        "../scripts/tabulate_table8.py"


rule tabulate_table9:
    input:
        tests="<results>/statistics/signal_tests.csv",
    output:
        csv=report(
            "<results>/tables/table9.csv",
            caption="../report/table9.rst",
            category="pope",
            labels={"exhibit": "Table 9", "file": "CSV"},
        ),
        md="<results>/tables/table9.md",
        tex="<results>/tables/table9.tex",
        sidecar="<results>/tables/table9.json",
    log:
        "<results>/logs/tabulate_table9.log",
    benchmark:
        "<results>/benchmarks/tabulate_table9.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **INSTRUMENTED,
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("tabulate_table9"),
    script:
        "../scripts/tabulate_table9.py"
