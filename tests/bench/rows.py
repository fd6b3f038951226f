"""Rows of a benchmark's result: {name, ours, reference, ratio, unit, target, holds, runs, spread}."""

import json
import math
import os
import statistics

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 14: 2.14, 19: 2.09}


def row(name, ours, unit, reference=None, target=None, holds=None, runs=1, spread=None, ratio=None):
    """`ratio`: unless given, ours by the reference, if there is any."""
    if ratio is None and reference:
        ratio = ours / reference
    return {"name": name, "ours": ours, "reference": reference, "ratio": ratio, "unit": unit, "target": target,
            "holds": holds, "runs": runs, "spread": spread}


def row_of_pairs(name, ours, reference, unit, least=None, most=None):
    """Of runs in turn: the geometric mean of the ratios with its 95 % confidence interval (Student's t on the logarithms),
    which there is of two pairs and more. The mean has to be at least or at most so much."""
    logs = [math.log(one / other) for one, other in zip(ours, reference)]
    ratio, spread = math.exp(statistics.mean(logs)), None
    if len(logs) > 1:
        quantile = STUDENT[max(degrees for degrees in STUDENT if degrees < len(logs))]
        factor = math.exp(quantile * statistics.stdev(logs) / math.sqrt(len(logs)))
        spread = [ratio / factor, ratio * factor]
    target, holds = None, None
    if least is not None:
        target, holds = f">= {least}", ratio >= least
    if most is not None:
        target, holds = f"<= {most}", ratio <= most
    return row(name, statistics.median(ours), unit, statistics.median(reference), target, holds, len(logs), spread, ratio)


def row_of_limit(name, ours, limit, unit):
    worst = max(ours)
    return row(name, statistics.median(ours), unit, limit, f"<= {limit} {unit}", worst <= limit, len(ours),
               [min(ours) / limit, worst / limit])


def print_table(rows):
    print(f"{'name':36} {'ours':>12} {'reference':>12} {'unit':>12} {'ratio':>7} {'95 % interval or range':>24} {'target':>18}  holds")
    for row in rows:
        spread = f"{row['spread'][0]:.3f} .. {row['spread'][1]:.3f}" if row.get("spread") else ""
        ratio = f"{row['ratio']:.3f}" if row.get("ratio") is not None else ""
        reference = f"{row['reference']:,.1f}" if row.get("reference") is not None else ""
        holds = {True: "yes", False: "NO"}.get(row.get("holds"), "")
        print(f"{row['name']:36} {row['ours']:>12,.1f} {reference:>12} {row['unit']:>12} {ratio:>7} {spread:>24} "
              f"{str(row.get('target') or ''):>18}  {holds}")


def write_rows(rows, path):
    """Returns whether every target holds."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)
        file.write("\n")
    return all(row.get("holds", True) is not False for row in rows)
