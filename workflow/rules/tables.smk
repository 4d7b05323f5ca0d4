"""
Needs: <results>/statistics.
Makes: the first paper's tables as <results>/tables/tableN.csv (full precision), .md and .tex (printed decimals),
each with a sidecar .json that says where it comes from.
"""

TABLES = ["table1", "table2", "table4", "table7", "table13", "split_consistency", "diagnostic"]


rule tabulate_table1:
    input:
        first_tokens="<results>/statistics/first_tokens.csv",
    output:
        csv=report(
            "<results>/tables/table1.csv",
            caption="../report/table1.rst",
            category="pope",
            labels={"exhibit": "Table 1", "file": "CSV"},
        ),
        md="<results>/tables/table1.md",
        tex="<results>/tables/table1.tex",
        sidecar="<results>/tables/table1.json",
    log:
        "<results>/logs/tabulate_table1.log",
    benchmark:
        "<results>/benchmarks/tabulate_table1.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("tabulate_table1"),
    script:
        "../scripts/tabulate_table1.py"


rule tabulate_table2:
    input:
        confusion="<results>/statistics/confusion.csv",
    output:
        csv=report(
            "<results>/tables/table2.csv",
            caption="../report/table2.rst",
            category="pope",
            labels={"exhibit": "Table 2", "file": "CSV"},
        ),
        md="<results>/tables/table2.md",
        tex="<results>/tables/table2.tex",
        sidecar="<results>/tables/table2.json",
    log:
        "<results>/logs/tabulate_table2.log",
    benchmark:
        "<results>/benchmarks/tabulate_table2.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("tabulate_table2"),
    script:
        "../scripts/tabulate_table2.py"


rule tabulate_table4:
    input:
        confusion="<results>/statistics/confusion.csv",
    output:
        csv=report(
            "<results>/tables/table4.csv",
            caption="../report/table4.rst",
            category="pope",
            labels={"exhibit": "Table 4", "file": "CSV"},
        ),
        md="<results>/tables/table4.md",
        tex="<results>/tables/table4.tex",
        sidecar="<results>/tables/table4.json",
    log:
        "<results>/logs/tabulate_table4.log",
    benchmark:
        "<results>/benchmarks/tabulate_table4.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        display=DISPLAY,
        string_parse={model: config["models"][model]["string_parse"] for model in MODELS},
        code=code_digest("tabulate_table4"),
    script:
        "../scripts/tabulate_table4.py"


rule tabulate_table7:
    input:
        transitions="<results>/statistics/transitions.csv",
    output:
        csv=report(
            "<results>/tables/table7.csv",
            caption="../report/table7.rst",
            category="pope",
            labels={"exhibit": "Table 7", "file": "CSV"},
        ),
        md="<results>/tables/table7.md",
        tex="<results>/tables/table7.tex",
        sidecar="<results>/tables/table7.json",
    log:
        "<results>/logs/tabulate_table7.log",
    benchmark:
        "<results>/benchmarks/tabulate_table7.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("tabulate_table7"),
    script:
        "../scripts/tabulate_table7.py"


rule tabulate_table13:
    input:
        confusion="<results>/statistics/confusion.csv",
    output:
        csv=report(
            "<results>/tables/table13.csv",
            caption="../report/table13.rst",
            category="pope",
            labels={"exhibit": "Table 13", "file": "CSV"},
        ),
        md="<results>/tables/table13.md",
        tex="<results>/tables/table13.tex",
        sidecar="<results>/tables/table13.json",
    log:
        "<results>/logs/tabulate_table13.log",
    benchmark:
        "<results>/benchmarks/tabulate_table13.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("tabulate_table13"),
    script:
        "../scripts/tabulate_table13.py"
