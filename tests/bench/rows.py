"""Rows of a benchmark's result: {name, ours, reference, ratio, unit, target, holds, runs, spread}."""

import json
import os
import statistics


def row_of_limit(name, ours, limit, unit):
    worst = max(ours)
    return {
        "name": name,
        "ours": statistics.median(ours),
        "reference": limit,
        "ratio": statistics.median(ours) / limit,
        "unit": unit,
        "target": f"<= {limit} {unit}",
        "holds": worst <= limit,
        "runs": len(ours),
        "spread": [min(ours) / limit, worst / limit],
    }


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
