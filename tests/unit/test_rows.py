import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import logits
from workflow.models import rows


@given(st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_ranks_top_and_normaliser_agree_with_a_plain_sort(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(3, 200, generator=generator) * 3).to(dtype).float()
    candidates = sorted(torch.randperm(200, generator=generator)[:7].tolist())
    columns = rows.distribution(scores, candidates)
    for row, values in enumerate(scores.numpy()):
        order = np.lexsort((np.arange(200), -values))
        assert columns["argmax_id"][row] == order[0] == int(scores[row].argmax())
        assert np.array_equal(columns["top_logits"][row], values[order[: logits.TOP]])
        for token in candidates:
            assert columns[f"logit_{token}"][row] == values[token]
            assert columns[f"rank_{token}"][row] == 1 + (values > values[token]).sum()
        assert columns["logsumexp"][row] == pytest.approx(np.log(np.exp(values.astype(float)).sum()), abs=1e-5)


def test_tied_top_ids_stand_in_ascending_order():
    scores = torch.zeros(1, 100)
    scores[0, [7, 3, 50]] = 2.0
    columns = rows.distribution(scores, [3, 7])
    assert columns["top_ids"][0, :3].tolist() == [3, 7, 50]
    assert columns["rank_3"][0] == columns["rank_7"][0] == 1
