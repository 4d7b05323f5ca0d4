"""Join what was measured of one split into its signals table."""

from workflow.lib import files, items, job, logits, signal_parts, signals

with job.opened(snakemake) as run:
    questions, _ = items.load(run.input.questions)
    shards = [(path, signal_parts.load(path)) for path in run.input.shards]
    similarities = next(((path, signal_parts.load(path)) for path in run.input.similarities), None)
    passes = zip(run.params.kinds, run.input.noise, strict=True)
    noise = {kind: (path, logits.read(path)) for kind, path in passes}
    stated = dict(zip(run.params.centred, map(files.read_json, run.input.clip), strict=True))
    certainties = {
        which: {"slope": held["slope"], "centre": signal_parts.centre(held, stated.get(which, {}), which)}
        for which, held in run.params.clip.items()
    }
    frame, metadata = signal_parts.join(questions, shards, similarities, noise, certainties, run.params.expected)
    signals.save(frame, run.output.signals, metadata)
