"""
Needs: <results>/statistics, <results>/tokens/{model}.csv (how a tokenizer in force encodes the surface forms) and, of
the second template axis, <results>/templates/{model}/{template}/answers.parquet; workflow/published for Tables 3, 6
and 12.
Makes: Tables 3, 5, 6, 10, 11 and 12 of the first paper, in the forms that tables.smk gives; <results>/statistics:
survey and templates.
"""

from workflow.lib.survey import SURVEY
from workflow.lib.tables.table6 import NOTATION

# templates that Table 11 compares, and how it prints them
COMPARED_TEMPLATES = {"as_run": "Paper template", "native": "Native chat template"}
# released records do not say what an id decodes to, so Table 5 needs a tokenizer; 10 and 11 need their model
MORE_TABLES = [
    *["table3", "table6", "table12"],
    *(["table5"] if config["begins_at"] == "model" else []),
    *(["table10", "table11"] if ENCODED in MODELS else []),
]


rule tabulate_table3:
    output:
        csv=report(
            "<results>/tables/table3.csv",
            caption="../report/table3.rst",
            category="pope",
            labels={"exhibit": "Table 3", "file": "CSV"},
        ),
        md="<results>/tables/table3.md",
        tex="<results>/tables/table3.tex",
        sidecar="<results>/tables/table3.json",
    log:
        "<results>/logs/tabulate_table3.log",
    benchmark:
        "<results>/benchmarks/tabulate_table3.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        published=published(SURVEY),
        code=code_digest("tabulate_table3"),
    script:
        "../scripts/tabulate_table3.py"


rule tabulate_table5:
    input:
        forms=f"<results>/tokens/{AUDITED}.csv",
    output:
        csv=report(
            "<results>/tables/table5.csv",
            caption="../report/table5.rst",
            category="pope",
            labels={"exhibit": "Table 5", "file": "CSV"},
        ),
        md="<results>/tables/table5.md",
        tex="<results>/tables/table5.tex",
        sidecar="<results>/tables/table5.json",
    log:
        "<results>/logs/tabulate_table5.log",
    benchmark:
        "<results>/benchmarks/tabulate_table5.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("tabulate_table5"),
    script:
        "../scripts/tabulate_table5.py"


rule tabulate_table6:
    output:
        csv=report(
            "<results>/tables/table6.csv",
            caption="../report/table6.rst",
            category="pope",
            labels={"exhibit": "Table 6", "file": "CSV"},
        ),
        md="<results>/tables/table6.md",
        tex="<results>/tables/table6.tex",
        sidecar="<results>/tables/table6.json",
    log:
        "<results>/logs/tabulate_table6.log",
    benchmark:
        "<results>/benchmarks/tabulate_table6.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        published=published(NOTATION),
        code=code_digest("tabulate_table6"),
    script:
        "../scripts/tabulate_table6.py"


rule tabulate_table10:
    input:
        forms=f"<results>/tokens/{ENCODED}.csv",
    output:
        csv=report(
            "<results>/tables/table10.csv",
            caption="../report/table10.rst",
            category="pope",
            labels={"exhibit": "Table 10", "file": "CSV"},
        ),
        md="<results>/tables/table10.md",
        tex="<results>/tables/table10.tex",
        sidecar="<results>/tables/table10.json",
    log:
        "<results>/logs/tabulate_table10.log",
    benchmark:
        "<results>/benchmarks/tabulate_table10.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=ENCODED,
        display=config["models"][ENCODED]["display"],
        code=code_digest("tabulate_table10"),
    script:
        "../scripts/tabulate_table10.py"


rule tabulate_table11:
    input:
        templates="<results>/statistics/templates.csv",
    output:
        csv=report(
            "<results>/tables/table11.csv",
            caption="../report/table11.rst",
            category="pope",
            labels={"exhibit": "Table 11", "file": "CSV"},
        ),
        md="<results>/tables/table11.md",
        tex="<results>/tables/table11.tex",
        sidecar="<results>/tables/table11.json",
    log:
        "<results>/logs/tabulate_table11.log",
    benchmark:
        "<results>/benchmarks/tabulate_table11.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=ENCODED,
        display=COMPARED_TEMPLATES,
        code=code_digest("tabulate_table11"),
    script:
        "../scripts/tabulate_table11.py"


rule tabulate_table12:
    output:
        csv=report(
            "<results>/tables/table12.csv",
            caption="../report/table12.rst",
            category="pope",
            labels={"exhibit": "Table 12", "file": "CSV"},
        ),
        md="<results>/tables/table12.md",
        tex="<results>/tables/table12.tex",
        sidecar="<results>/tables/table12.json",
    log:
        "<results>/logs/tabulate_table12.log",
    benchmark:
        "<results>/benchmarks/tabulate_table12.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        published=published(SURVEY),
        code=code_digest("tabulate_table12"),
    script:
        "../scripts/tabulate_table12.py"


rule compare_survey:
    input:
        protocol_gap="<results>/statistics/protocol_gap.csv",
    output:
        survey="<results>/statistics/survey.csv",
    log:
        "<results>/logs/compare_survey.log",
    benchmark:
        "<results>/benchmarks/compare_survey.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        model=AUDITED,
        published=published(SURVEY),
        code=code_digest("compare_survey"),
    script:
        "../scripts/compare_survey.py"


rule compare_templates:
    input:
        answers=expand(
            "<results>/templates/{model}/{template}/answers.parquet", model=ENCODED, template=COMPARED_TEMPLATES
        ),
    output:
        templates="<results>/statistics/templates.csv",
    log:
        "<results>/logs/compare_templates.log",
    benchmark:
        "<results>/benchmarks/compare_templates.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        model=ENCODED,
        templates=list(COMPARED_TEMPLATES),
        readouts=READOUTS,
        code=code_digest("compare_templates"),
    script:
        "../scripts/compare_templates.py"
