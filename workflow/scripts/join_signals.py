"""Join what was measured of one split into its signals table."""

from workflow.lib import files, items, job, logits, signal_parts, signals

with job.opened(snakemake) as run:
    questions, _ = items.load(run.input.questions)
    shards = [(path, signal_parts.load(path)) for path in run.input.shards]
    similarities = next(((path, signal_parts.load(path)) for path in run.input.similarities), None)
    passes = zip(run.params.kinds, run.input.noise, strict=True)
    noise = {kind: (path, logits.read(path)) for kind, path in passes}
    certainties = {}
    for (which, settings), path in zip(run.params.clip.items(), run.input.clip, strict=True):
        centre = signal_parts.centre(settings, files.read_json(path), which)
        certainties[which] = {"slope": settings["slope"], "centre": centre}
    frame, metadata = signal_parts.join(questions, shards, similarities, noise, certainties, run.params.expected)
    signals.save(frame, run.output.signals, metadata)
