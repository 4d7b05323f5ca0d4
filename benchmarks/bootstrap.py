"""Compare our bootstrap of F1 with scipy.stats.bootstrap on the same work, in one run.

    python benchmarks/bootstrap.py

The work: the outcomes of 3,000 questions (eight-token rule, adversarial split of the first paper), 10,000 resamples
of questions, percentile interval. scipy gets the same statistic, vectorised, over one array of outcome codes, at the
batch size that serves it best. Exits with status 1 where the ratio of times is below 50 or the percentiles differ by
more than Monte Carlo error.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workflow.lib import resampling

COUNTS = {"tp": 1174, "fp": 182, "fn": 326, "tn": 1318}
RESAMPLES = 10_000
LEVEL = 0.95
REPEATS = 3
REQUIRED = 50


def f1_of_codes(codes: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return F1 of outcome codes 0 (TP), 1 (FP), 2 (FN), 3 (TN) along an axis."""
    tp, fp, fn = ((codes == code).sum(axis=axis) for code in range(3))
    return 2 * tp / (2 * tp + fp + fn)


def best_time(work: Callable[[], object]) -> tuple[float, object]:
    """Return the shortest of several times in seconds, and the last result."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def main() -> int:
    """Run both, print times, ratio and intervals; return the exit status."""
    labels = ["yes", "no", "yes", "no"]
    answers = ["yes", "yes", "no", "no"]
    repeated = [np.repeat(words, list(COUNTS.values())).tolist() for words in (np.array(labels), np.array(answers))]
    codes = np.repeat(np.arange(4, dtype=np.int8), list(COUNTS.values()))
    grouped = resampling.outcomes(*repeated, unit="question")

    def ours() -> resampling.Interval:
        return resampling.f1_interval(grouped, LEVEL, RESAMPLES, np.random.default_rng(1))

    def from_answers() -> resampling.Interval:
        held = resampling.outcomes(*repeated, unit="question")
        return resampling.f1_interval(held, LEVEL, RESAMPLES, np.random.default_rng(1))

    def theirs(batch: int | None):
        return stats.bootstrap(
            (codes,),
            f1_of_codes,
            n_resamples=RESAMPLES,
            batch=batch,
            vectorized=True,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(2),
        )

    our_time, our_interval = best_time(ours)
    whole_time, _ = best_time(from_answers)
    timed = {batch: best_time(lambda batch=batch: theirs(batch)) for batch in (None, 1000, 100)}
    batch = min(timed, key=lambda name: timed[name][0])
    their_time, found = timed[batch]
    their_low, their_high = (float(value) for value in found.confidence_interval)

    # Monte Carlo error of a percentile: binomial in rank, divided by the density of the resampled F1
    spread = float(np.std(found.bootstrap_distribution))
    tail = (1 - LEVEL) / 2
    density = stats.norm.pdf(stats.norm.ppf(tail)) / spread
    error = np.sqrt(2 * tail * (1 - tail) / RESAMPLES) / density
    worst = max(abs(our_interval.low - their_low), abs(our_interval.high - their_high))
    ratio = their_time / our_time

    print(f"questions {len(codes)}, resamples {RESAMPLES}, level {LEVEL}, best of {REPEATS}")
    print(f"ours   {our_time * 1e3:9.2f} ms   [{our_interval.low:.6f}, {our_interval.high:.6f}]")
    print(f"scipy  {their_time * 1e3:9.2f} ms   [{their_low:.6f}, {their_high:.6f}]   batch {batch}")
    for size, (seconds, _) in timed.items():
        print(f"       {seconds * 1e3:9.2f} ms   batch {size}")
    print(f"ratio  {ratio:9.0f}   (required {REQUIRED})")
    print(f"with grouping the answers {whole_time * 1e3:.2f} ms, ratio {their_time / whole_time:.0f}")
    print(f"largest difference of a percentile {worst:.6f}, Monte Carlo error {error:.6f}")
    return int(ratio < REQUIRED or worst > 4 * error)


if __name__ == "__main__":
    sys.exit(main())
