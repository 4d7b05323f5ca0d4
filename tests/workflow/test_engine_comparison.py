"""The comparison of both engines through the workflow, on the tiny study."""

import numpy as np
import pyarrow.parquet as pq

from workflow.lib import engine_agreement, files, logits

AGREEMENT = "results/statistics/engine_agreement.csv"
MODELS = ["llava15", "instructblip"]


def test_the_comparison_is_computed_and_belongs_to_the_study(tiny):
    frame = files.read_csv(tiny.path(AGREEMENT))
    assert tuple(frame.columns) == engine_agreement.COLUMNS
    readouts = tiny.path("results/run_config.yaml").read_text().split("names:")[1].split("precision:")[0].count("- ")
    assert frame["model"].tolist() == [model for model in MODELS for _ in range(readouts)]
    assert (frame["engine"] == "shared_prefix").all() and (frame["study"] == "mini").all()
    # the first of two shards: four of eight images, six questions each
    assert (frame["images"] == 4).all() and (frame["questions"] == 24).all()
    for model in MODELS:
        rows = frame[frame["model"] == model]
        ours = logits.read(tiny.path(f"results/logits/{model}/adversarial/0.parquet"))
        theirs = logits.read(tiny.path(f"results/engines/{model}.parquet"))
        assert (ours.identity["engine"], theirs.identity["engine"]) == ("reference", "shared_prefix")
        assert ours.table["id"].to_pylist() == theirs.table["id"].to_pylist()
        by_hand = np.abs(ours.candidate_logits.astype(np.float64) - theirs.candidate_logits).max()
        largest = rows["max_delta_logit"].unique()
        # rounding of float32, not nothing and not more; ids that only the tops list may differ more
        assert len(largest) == 1 and 0 < by_hand <= largest[0] < 1e-3
        for flips in ("argmax_flips", "text_flips", "answer_flips"):
            assert rows[flips].between(0, 24).all()
        changed = (ours.table["argmax_id"].to_numpy() != theirs.table["argmax_id"].to_numpy()).sum()
        assert (rows["argmax_flips"] == changed).all()
        margins = {row.readout: row.smallest_margin for row in rows.itertuples()}
        stored = pq.read_table(tiny.path(f"results/answers/{model}/adversarial.parquet")).to_pandas()
        asked = stored[stored["id"].isin(ours.table["id"].to_pylist()) & (stored["readout"] == "legacy_2tok")]
        assert float(margins["legacy_2tok"]) == asked["margin"].abs().min()
        assert margins["string_parse"] == ""
    # two models are two measurements
    assert frame.groupby("model")["max_delta_logit"].first().nunique() == 2
    assert frame["smallest_margin"].nunique() > 2
    assert not tiny.planned("engine_agreement")


def test_a_flipped_answer_is_counted(tiny):
    before = files.read_csv(tiny.path(AGREEMENT)).set_index(["model", "readout"])
    path = tiny.path("results/engines/llava15.parquet")
    held = logits.read(path)
    identity = dict(held.identity)
    # swap what the two-token rule compares in the row where the two differ most
    place = {token: held.table.column_names.index(f"logit_{token}") for token in (3582, 1217)}
    yes, no = (held.table[f"logit_{token}"].to_numpy().copy() for token in (3582, 1217))
    row = np.abs(yes - no).argmax()
    gap = abs(float(yes[row]) - float(no[row]))
    yes[row], no[row] = no[row], yes[row]
    table = held.table
    for token, values in ((3582, yes), (1217, no)):
        table = table.set_column(place[token], table.schema.field(place[token]), [values])
    logits.write(logits.Logits(table, identity), path)
    assert tiny.build("engine_agreement")["compare_engines"] == 1
    after = files.read_csv(tiny.path(AGREEMENT)).set_index(["model", "readout"])
    assert (
        after.loc[("llava15", "legacy_2tok"), "answer_flips"]
        == before.loc[("llava15", "legacy_2tok"), "answer_flips"] + 1
    )
    assert after.loc[("llava15", "legacy_2tok"), "max_delta_logit"] >= gap > 0
    assert (after.loc["instructblip"] == before.loc["instructblip"]).all(axis=None)
