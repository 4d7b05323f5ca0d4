"""
Needs: items, checkpoints and merged logits.
Makes: <results>/templates/{model}/{template}: logits and answers to the first questions of one split under a prompt
template of choice; <results>/tokens/{model}.csv, how the tokenizer in force encodes the surface forms.
"""


rule select_questions:
    input:
        questions=f"<results>/items/{config['templates']['split']}.parquet",
    output:
        questions="<results>/templates/questions.parquet",
    log:
        "<results>/logs/select_questions.log",
    benchmark:
        "<results>/benchmarks/select_questions.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        first=config["templates"]["questions"],
        code=code_digest("select_questions"),
    script:
        "../scripts/select_questions.py"


rule infer_template:
    input:
        unpack(inference_inputs("template")),
    output:
        shard="<results>/templates/{model}/{template}/logits.parquet",
    log:
        "<results>/logs/infer_template/{model}/{template}.log",
    benchmark:
        "<results>/benchmarks/infer_template/{model}/{template}.tsv"
    conda:
        model_environment_file
    threads: config["run"]["threads"]
    resources:
        gpu=int(config["run"]["device"] == "cuda"),
    params:
        study=STUDY,
        seed=config["seed"],
        settings=lambda wildcards: model_settings(wildcards.model, wildcards.template),
        run={key: config["run"][key] for key in INFERENCE_KEYS} | {"shards": 1},
        token_sets=config["readouts"]["token_sets"],
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_template", family_module(wildcards.model)),
    script:
        "../scripts/infer_template.py"


rule read_template:
    input:
        logits="<results>/templates/{model}/{template}/logits.parquet",
        questions="<results>/templates/questions.parquet",
    output:
        answers="<results>/templates/{model}/{template}/answers.parquet",
    log:
        "<results>/logs/read_template/{model}/{template}.log",
    benchmark:
        "<results>/benchmarks/read_template/{model}/{template}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        readouts=READOUTS,
        precision=config["readouts"]["precision"],
        code=code_digest("read_template"),
    script:
        "../scripts/read_template.py"


rule read_forms:
    input:
        logits=expand("<results>/logits/{{model}}/{split}.parquet", split=SPLITS),
    output:
        forms="<results>/tokens/{model}.csv",
    log:
        "<results>/logs/read_forms/{model}.log",
    benchmark:
        "<results>/benchmarks/read_forms/{model}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        code=code_digest("read_forms"),
    script:
        "../scripts/read_forms.py"
