"""Simulated campaigns: how many of the best tenth of a table each rule of molattn plan finds.

50 molecules at random are measured first, then five batches of 20 that a rule chooses by a
Gaussian process of those measured so far.

Example:
    python -m scripts.experiments.campaign lipo.csv:logD assay.csv:pKi --output campaign.csv
    python -m scripts.experiments.campaign --output campaign.csv --plot campaign.png
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import molattn
from molattn.inference.plan import ACQUISITIONS, Candidates, select_batch
from molattn.model.gaussian_process import GaussianProcessHead

START, BATCHES, SIZE, HITS, SEEDS, MOST = 50, 5, 20, 0.1, 10, 1500


def campaign(config, inputs, labels, rule, seed):
    """Return the fraction of the hits among the measured molecules after each batch."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    measured, hits = order[:START].tolist(), labels >= np.quantile(labels, 1.0 - HITS)
    found = []
    for _ in range(BATCHES):
        left = np.setdiff1d(order, measured)
        if rule == "random":
            chosen = rng.permutation(len(left))[:SIZE]
        else:
            known = labels[measured]
            scaled = ((known - known.mean()) / known.std())[:, None]
            process = GaussianProcessHead.fit(config, inputs[np.array(measured)], scaled)
            mean = process.predict(inputs[left])[:, 0]
            covariance, noise = process.posterior(inputs[left], 0)
            # Closed form of the variance of the signal.
            order_of_points = scaled[process.rows, 0] - process.means[0]
            signal = float(order_of_points @ process.weights[:, 0]) / len(scaled)
            candidates = Candidates(
                mean, signal * covariance, np.full(len(left), signal * noise), np.ones(len(left))
            )
            best = float(scaled.max())
            chosen = [one.index for one in select_batch(candidates, SIZE, best, rule)]
        measured += left[chosen].tolist()
        found.append(hits[measured].sum() / hits.sum())
    return found


def draw(table, path):
    """Draw the mean fractions against the number of measured molecules."""
    sets = table["data"].unique()
    figure, axes = plt.subplots(1, len(sets), figsize=(9, 3), layout="constrained", sharey=True)
    for ax, name in zip(axes, sets, strict=True):
        means = table[table["data"] == name].pivot_table("hits", "batch", "rule")
        for rule, hits in means.items():
            ax.plot(START + SIZE * hits.index, hits, label=rule.replace("_", " "))
        ax.set(title=name, xlabel="molecules measured", ylim=(0.0, None))
    axes[0].set_ylabel("fraction of the best tenth found")
    axes[-1].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=130)


def main():
    """Run the campaigns and print the mean fractions with standard errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help="FILE:TARGET")
    parser.add_argument("--output", type=Path, required=True, help="CSV")
    parser.add_argument("--plot", type=Path, help="draw the CSV, and run nothing")
    options = parser.parse_args()
    if options.plot:
        draw(pd.read_csv(options.output), options.plot)
        return
    rows = []
    for word in options.tables:
        path, _, target = word.rpartition(":")
        frame = pd.read_csv(path).drop_duplicates("smiles").sample(frac=1.0, random_state=0)[:MOST]
        model = molattn.train(frame, target_columns=[target], predictor="gaussian_process").model
        records = model.networks.read(frame["smiles"].tolist())
        _, inputs = model.networks.predict(records)
        for rule in ("random", *ACQUISITIONS):
            for seed in range(SEEDS):
                found = campaign(model.config, inputs, frame[target].to_numpy(), rule, seed)
                name = Path(path).name.split(".")[0]
                rows += [(name, rule, seed, *one) for one in enumerate(found, start=1)]
    table = pd.DataFrame(rows, columns=["data", "rule", "seed", "batch", "hits"])
    table.to_csv(options.output, index=False, float_format="%.4f")
    print(table[table["batch"] == BATCHES].groupby(["data", "rule"])["hits"].agg(["mean", "sem"]))


if __name__ == "__main__":
    main()
