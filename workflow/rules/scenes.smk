"""
Needs: the section scenes of the configuration.
Makes: <results>/scenes: the synthetic polling benchmark, in POPE's own layout, beside its images.
"""


rule build_scenes:
    output:
        polls=expand("<results>/scenes/pope_mini_{split}.json", split=["adversarial", "popular", "random"]),
        images=directory("<results>/scenes/images"),
        table="<results>/scenes/images.csv",
    log:
        "<results>/logs/build_scenes/all.log",
    benchmark:
        "<results>/benchmarks/build_scenes/all.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        seed=config["seed"],
        scenes=config["scenes"],
        code=code_digest("build_scenes"),
    script:
        "../scripts/build_scenes.py"
