"""
Needs: <results>/statistics, answers, items, signals and tokens.
Makes: the first paper's figures as <results>/figures/figN.pdf and .png, each with the plotted data as figN.csv and a
sidecar figN.json that says where they come from. A figure's style is its module alone, so restyling one redraws one.
"""

# Figure 10 needs the second model
FIGURES = [f"fig{number}" for number in range(1, 11) if number != 10 or ENCODED in MODELS]
# one model on one split, as in the paper, where the study has that split
FIGURED = {"model": AUDITED, "split": "adversarial" if "adversarial" in SPLITS else SPLITS[0]}


rule plot_fig1:
    input:
        transitions="<results>/statistics/transitions.csv",
        first_tokens="<results>/statistics/first_tokens.csv",
    output:
        pdf=report(
            "<results>/figures/fig1.pdf",
            caption="../report/fig1.rst",
            category="pope",
            labels=figure_labels(1, "PDF"),
        ),
        png=report(
            "<results>/figures/fig1.png",
            caption="../report/fig1.rst",
            category="pope",
            labels=figure_labels(1, "PNG"),
        ),
        csv="<results>/figures/fig1.csv",
        sidecar="<results>/figures/fig1.json",
    log:
        "<results>/logs/plot_fig1.log",
    benchmark:
        "<results>/benchmarks/plot_fig1.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **FIGURED,
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig1"),
    script:
        "../scripts/plot_fig1.py"


rule plot_fig2:
    input:
        confusion="<results>/statistics/confusion.csv",
    output:
        pdf=report(
            "<results>/figures/fig2.pdf",
            caption="../report/fig2.rst",
            category="pope",
            labels=figure_labels(2, "PDF"),
        ),
        png=report(
            "<results>/figures/fig2.png",
            caption="../report/fig2.rst",
            category="pope",
            labels=figure_labels(2, "PNG"),
        ),
        csv="<results>/figures/fig2.csv",
        sidecar="<results>/figures/fig2.json",
    log:
        "<results>/logs/plot_fig2.log",
    benchmark:
        "<results>/benchmarks/plot_fig2.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **FIGURED,
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig2"),
    script:
        "../scripts/plot_fig2.py"


rule plot_fig3:
    input:
        answers=f"<results>/answers/{FIGURED['model']}/{FIGURED['split']}.parquet",
    output:
        pdf=report(
            "<results>/figures/fig3.pdf",
            caption="../report/fig3.rst",
            category="pope",
            labels=figure_labels(3, "PDF"),
        ),
        png=report(
            "<results>/figures/fig3.png",
            caption="../report/fig3.rst",
            category="pope",
            labels=figure_labels(3, "PNG"),
        ),
        csv="<results>/figures/fig3.csv",
        sidecar="<results>/figures/fig3.json",
    log:
        "<results>/logs/plot_fig3.log",
    benchmark:
        "<results>/benchmarks/plot_fig3.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig3"),
    script:
        "../scripts/plot_fig3.py"


rule plot_fig4:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=AUDITED, split=SPLITS),
    output:
        pdf=report(
            "<results>/figures/fig4.pdf",
            caption="../report/fig4.rst",
            category="pope",
            labels=figure_labels(4, "PDF"),
        ),
        png=report(
            "<results>/figures/fig4.png",
            caption="../report/fig4.rst",
            category="pope",
            labels=figure_labels(4, "PNG"),
        ),
        csv="<results>/figures/fig4.csv",
        sidecar="<results>/figures/fig4.json",
    log:
        "<results>/logs/plot_fig4.log",
    benchmark:
        "<results>/benchmarks/plot_fig4.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("plot_fig4"),
    script:
        "../scripts/plot_fig4.py"


rule plot_fig5:
    input:
        first_tokens="<results>/statistics/first_tokens.csv",
    output:
        pdf=report(
            "<results>/figures/fig5.pdf",
            caption="../report/fig5.rst",
            category="pope",
            labels=figure_labels(5, "PDF"),
        ),
        png=report(
            "<results>/figures/fig5.png",
            caption="../report/fig5.rst",
            category="pope",
            labels=figure_labels(5, "PNG"),
        ),
        csv="<results>/figures/fig5.csv",
        sidecar="<results>/figures/fig5.json",
    log:
        "<results>/logs/plot_fig5.log",
    benchmark:
        "<results>/benchmarks/plot_fig5.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        model=AUDITED,
        code=code_digest("plot_fig5"),
    script:
        "../scripts/plot_fig5.py"


rule plot_fig6:
    input:
        answers=f"<results>/answers/{FIGURED['model']}/{FIGURED['split']}.parquet",
        questions=f"<results>/items/{FIGURED['split']}.parquet",
        images=config["dataset"]["images"] or [],
    output:
        pdf=report(
            "<results>/figures/fig6.pdf",
            caption="../report/fig6.rst",
            category="pope",
            labels=figure_labels(6, "PDF"),
        ),
        png=report(
            "<results>/figures/fig6.png",
            caption="../report/fig6.rst",
            category="pope",
            labels=figure_labels(6, "PNG"),
        ),
        csv="<results>/figures/fig6.csv",
        sidecar="<results>/figures/fig6.json",
    log:
        "<results>/logs/plot_fig6.log",
    benchmark:
        "<results>/benchmarks/plot_fig6.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig6"),
    script:
        "../scripts/plot_fig6.py"


rule plot_fig7:
    input:
        corrections="<results>/statistics/corrections.csv",
    output:
        pdf=report(
            "<results>/figures/fig7.pdf",
            caption="../report/fig7.rst",
            category="pope",
            labels=figure_labels(7, "PDF"),
        ),
        png=report(
            "<results>/figures/fig7.png",
            caption="../report/fig7.rst",
            category="pope",
            labels=figure_labels(7, "PNG"),
        ),
        csv="<results>/figures/fig7.csv",
        sidecar="<results>/figures/fig7.json",
    log:
        "<results>/logs/plot_fig7.log",
    benchmark:
        "<results>/benchmarks/plot_fig7.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **INSTRUMENTED,
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        variant=config["statistics"]["variant"],
        code=code_digest("plot_fig7"),
    script:
        "../scripts/plot_fig7.py"


rule plot_fig8:
    input:
        signals=f"<results>/signals/{INSTRUMENTED['model']}/{INSTRUMENTED['split']}.parquet",
    output:
        pdf=report(
            "<results>/figures/fig8.pdf",
            caption="../report/fig8.rst",
            category="pope",
            labels=figure_labels(8, "PDF"),
        ),
        png=report(
            "<results>/figures/fig8.png",
            caption="../report/fig8.rst",
            category="pope",
            labels=figure_labels(8, "PNG"),
        ),
        csv="<results>/figures/fig8.csv",
        sidecar="<results>/figures/fig8.json",
    log:
        "<results>/logs/plot_fig8.log",
    benchmark:
        "<results>/benchmarks/plot_fig8.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig8"),
    script:
        "../scripts/plot_fig8.py"


rule plot_fig9:
    input:
        signals=f"<results>/signals/{INSTRUMENTED['model']}/{INSTRUMENTED['split']}.parquet",
    output:
        pdf=report(
            "<results>/figures/fig9.pdf",
            caption="../report/fig9.rst",
            category="pope",
            labels=figure_labels(9, "PDF"),
        ),
        png=report(
            "<results>/figures/fig9.png",
            caption="../report/fig9.rst",
            category="pope",
            labels=figure_labels(9, "PNG"),
        ),
        csv="<results>/figures/fig9.csv",
        sidecar="<results>/figures/fig9.json",
    log:
        "<results>/logs/plot_fig9.log",
    benchmark:
        "<results>/benchmarks/plot_fig9.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("plot_fig9"),
    script:
        "../scripts/plot_fig9.py"


rule plot_fig10:
    input:
        forms=f"<results>/tokens/{ENCODED}.csv",
        first_tokens="<results>/statistics/first_tokens.csv",
    output:
        pdf=report(
            "<results>/figures/fig10.pdf",
            caption="../report/fig10.rst",
            category="pope",
            labels=figure_labels(10, "PDF"),
        ),
        png=report(
            "<results>/figures/fig10.png",
            caption="../report/fig10.rst",
            category="pope",
            labels=figure_labels(10, "PNG"),
        ),
        csv="<results>/figures/fig10.csv",
        sidecar="<results>/figures/fig10.json",
    log:
        "<results>/logs/plot_fig10.log",
    benchmark:
        "<results>/benchmarks/plot_fig10.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        models=[AUDITED, ENCODED],
        code=code_digest("plot_fig10"),
    script:
        "../scripts/plot_fig10.py"
