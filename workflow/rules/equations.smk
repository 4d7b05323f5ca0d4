"""
Needs: <results>/statistics/transitions.csv.
Makes: <results>/statistics/equations.csv, Equations (1) to (5) of the first paper on every split.
"""


rule evaluate_equations:
    input:
        transitions="<results>/statistics/transitions.csv",
    output:
        equations="<results>/statistics/equations.csv",
    log:
        "<results>/logs/evaluate_equations.log",
    benchmark:
        "<results>/benchmarks/evaluate_equations.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        code=code_digest("evaluate_equations"),
    script:
        "../scripts/evaluate_equations.py"
