"""docs/experiments.md and its plots, out of the figures of each part (docs/experiments/PART.json)."""

import json
import math

import plot
from experiment import Scaling, Training

INTRODUCTION = """\
# Experiments

The algorithms of Downpour side by side on Fashion-MNIST. `make experiments` makes this page, its plots and the figures that they
are drawn from (`experiments/*.json`) in less than two hours on two cores; `EXPERIMENTS="codecs machines/slow" make experiments` measures
some again and leaves the others as they were. `tests/experiments/settings.py` lists what is run: an algorithm is one entry there.
Every run is `downpour run` with a manifest, and its folder stays in `build/experiments/`, with a page of `downpour compare`
for each group.

**What this can say and what it cannot.** All runs were made on one machine with few cores, over loopback, where the network costs
next to nothing and workers share the cores. One run each: another seed, or another order of the updates, moves an accuracy by a few
tenths of a percentage point. What others did on the machine meanwhile stands in the column "others": the share of all CPU time
that processes outside of the run took. Times are comparable only where it is about the same, and small. Learning rates were chosen with a
few short runs, not searched for. A run may be compared with its neighbours in the table, not with figures of other machines.
"""
MISSING = "Not measured yet.\n"
X_LABELS = {"seconds": "seconds since the first update", "samples": "samples trained on", "bytes": "bytes pushed and pulled"}
COLUMNS = {"seconds": 1, "samples": 2, "bytes": 3}  # of a point of a curve, which begins with the value


def figures_to_text(figures):
    """One run a line, to be read in a diff."""
    groups = []
    for group, runs in figures["groups"].items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in runs.items())
        groups.append(f"{json.dumps(group)}: {{\n{lines}\n}}")
    return '{"groups": {\n' + ",\n".join(groups) + "\n}}\n"


def decimal(value, digits=4):
    return "–" if value is None else f"{value:,.{digits}f}"


def size(count):
    if count is None:
        return "–"
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def percent(share):
    return f"{share:.0%}".replace("%", " %")


def flow(value):
    """YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)


def table(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratios(run, results):
    """Of each round in which both were measured."""
    if not run.compared_with:
        return []
    pairs = zip(results[run.name]["rates"], results.get(run.compared_with, {}).get("rates", []))
    return [one / other for one, other in pairs if one and other]


def accuracies_of(result):
    """On the test set, one after the other."""
    return [point[0] for point in result.get("curves", {}).get("test accuracy", []) if point[0] is not None]


def best_of(result):
    return max(accuracies_of(result), default=None)


def pushed_of(result):
    """What ps received; with all-reduce what workers sent one another."""
    return result.get("pushBytes", result.get("receivedBytes"))


def problem_of(result):
    return f"failed: {result['problem']}" if result["problem"] else ""


def targets_of(part, group, results):
    """Rows (what, figure, target, whether it holds) of the group's runs that were measured."""
    rows = []
    for run in group.runs:
        result = results.get(run.name)
        if result is None:
            continue
        what = f"{part.name}/{group.name}/{run.name}"
        if isinstance(group, Training):
            best = best_of(result)
            rows.append((what, problem_of(result) or f"test accuracy {decimal(best)}", f">= {group.accuracy}",
                         best is not None and best >= group.accuracy and not result["problem"]))
            other = best_of(results.get(run.compared_with, {}))
            if run.target is not None and best is not None and other is not None:
                side = "below" if best <= other else "above"
                rows.append((what, f"{decimal(abs(other - best))} {side} {run.compared_with}", f"<= {run.target} below",
                             other - best <= run.target))
        elif run.target is not None:
            measured = ratios(run, results)
            figure = f"{geometric_mean(measured):.2f} of {run.compared_with}" if measured else "not measured"
            rows.append((what, problem_of(result) or figure, f">= {run.target}",
                         bool(measured) and geometric_mean(measured) >= run.target and not result["problem"]))
    return rows


def training_table(group, results):
    compared = any(run.compared_with for run in group.runs)
    heading = ["", "test accuracy", "best"] + (["against the first"] if compared else []) + [
        f"seconds to {group.accuracy}", "samples/s", "pushed", "pulled", "others"]
    rows = []
    for run in group.runs:
        result = results.get(run.name)
        if result is None:
            continue
        best = best_of(result)
        row = [run.title, problem_of(result) or decimal(accuracies_of(result)[-1] if best is not None else None), decimal(best)]
        if compared:
            other = best_of(results.get(run.compared_with, {})) if run.compared_with else None
            row.append(f"{best - other:+.4f}" if best is not None and other is not None else "–")
        row += [decimal(result.get("secondsTo"), 1), decimal(result.get("samplesPerSecond"), 0),
                size(pushed_of(result)), size(result.get("sentBytes")), percent(result["others"])]
        rows.append(row)
    return table(heading, rows)


def samples_to(group, result):
    """When the epoch was done whose model reached the accuracy; None: none did."""
    return next((point[2] for point in result.get("curves", {}).get("test accuracy", [])
                 if point[0] is not None and point[0] >= group.accuracy), None)


def figures_of_scaling(group, results):
    """By series: of each run that was measured (run, result, workers, seconds to the accuracy, samples per second)."""
    series = {}
    for run in group.runs:
        result = results.get(run.name)
        if result is not None:
            series.setdefault(run.series, []).append(
                (run, result, run.spec["worker"]["replicas"], result.get("secondsTo"), result.get("samplesPerSecond")))
    return series


def scaling_table(group, results):
    rows = []
    for runs in figures_of_scaling(group, results).values():
        *_, first_seconds, first_rate = runs[0]
        for run, result, _, seconds, rate in runs:
            accuracies = accuracies_of(result)
            rows.append([run.title, problem_of(result) or decimal(accuracies[-1] if accuracies else None),
                         decimal(best_of(result)), decimal(seconds, 1),
                         decimal(first_seconds / seconds if first_seconds and seconds else None, 2),
                         decimal(samples_to(group, result), 0), decimal(rate, 0),
                         decimal(rate / first_rate if first_rate and rate else None, 2), size(pushed_of(result)),
                         size(result.get("sentBytes")), percent(result["others"])])
    return table(["", "test accuracy", "best", f"seconds to {group.accuracy}", "times as fast",
                  f"samples to {group.accuracy}", "samples/s", "times as many", "pushed", "pulled", "others"], rows)


def draw_scaling(part, group, results, folder):
    """Writes the files. Their Markdown."""
    text = ""
    for what, place, label in (("time", 3, f"seconds to {group.accuracy}"), ("rate", 4, "samples/s")):
        series = [(name, [(figures[2], figures[place]) for figures in runs])
                  for name, runs in figures_of_scaling(group, results).items()]
        title = f"{label[0].upper()}{label[1:]} against workers"
        path = folder / f"{part.name}-{group.name}-{what}.svg"
        path.write_text(plot.draw(f"{group.title}: {label} against workers", "workers", label, series), encoding="utf-8")
        text += f"![{title}]({folder.name}/{path.name})\n"
    return text


def throughput_table(group, results):
    rows = []
    for run in group.runs:
        result = results.get(run.name)
        if result is None:
            continue
        rates = [rate for rate in result["rates"] if rate]
        measured = ratios(run, results)
        rows.append([run.title, problem_of(result) or decimal(geometric_mean(rates) if rates else None, 0),
                     f"{geometric_mean(measured):.2f}" if measured else "",
                     f"{min(measured):.2f} to {max(measured):.2f}" if measured else "", len(rates),
                     percent(result["others"])])
    return table(["", "samples/s", "ratio", "of single rounds", "rounds", "others, at most"], rows)


def draw_plots(part, group, results, folder):
    """Writes the files. Their Markdown."""
    text = ""
    for quantity, against in group.plots:
        column = COLUMNS[against]
        series = [(run.title, [(point[column], point[0]) for point in results[run.name]["curves"][quantity]
                               if point[column] is not None])
                  for run in group.runs if results.get(run.name, {}).get("curves", {}).get(quantity)]
        what = "time" if against == "seconds" else against
        title = f"{quantity.capitalize()} against {what}"
        path = folder / f"{part.name}-{group.name}-{quantity.split()[1]}-{what}.svg"
        path.write_text(plot.draw(f"{group.title}: {title[0].lower()}{title[1:]}", X_LABELS[against], quantity, series),
                        encoding="utf-8")
        text += f"![{title}]({folder.name}/{path.name})\n"
    return text


def hyperparameters(parts, figures):
    rows = []
    for part, group, run, result in every_run(parts, figures):
        spec = result["spec"]
        slow = ", ".join(f"worker {one.worker}: {one.running:g} s running, {one.stopped:g} s stopped" for one in run.slowdowns)
        rows.append([f"{part.name}/{group.name}/{run.name}", spec["worker"]["replicas"], spec["training"]["epochs"],
                     spec["training"]["batchSize"], f"`{flow(spec['update'])}`", slow])
    return table(["run", "workers", "epochs", "batch", "`spec.update`", "slowed down"], rows)


def every_run(parts, figures):
    for part in parts:
        for group in part.groups:
            for run in group.runs:
                result = figures[part.name].get(group.name, {}).get(run.name)
                if result is not None:
                    yield part, group, run, result


def conditions(parts, figures):
    machines, others = {}, {}  # by part
    for part, group, run, result in every_run(parts, figures):
        machine = result["machine"]
        text = f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memoryGiB']} GiB, {result['date']}"
        machines.setdefault(part.name, {}).setdefault(text, []).append(f"{group.name}/{run.name}")
        others.setdefault(part.name, []).append(result["others"])

    def measured_on(runs_by_machine):
        """The machine of most runs, and whichever runs were made on another one, whose times are not to be compared."""
        most, *rest = sorted(runs_by_machine.items(), key=lambda one: -len(one[1]))
        return "; ".join([most[0]] + [f"but {', '.join(runs)}: {text}" for text, runs in rest])
    return table(["part", "measured on", "others took of the CPU time of a run"],
                 [[name, measured_on(runs), f"{percent(min(others[name]))} to {percent(max(others[name]))}"]
                  for name, runs in machines.items()])


def write(parts, docs):
    """Writes page and plots. Lines that say which targets are missed."""
    folder = docs / "experiments"
    folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    for part in parts:
        path = folder / f"{part.name}.json"
        figures[part.name] = json.loads(path.read_text(encoding="utf-8"))["groups"] if path.exists() else {}

    targets, sections = [], []
    for part in parts:
        section = f"## {part.title}\n\n{part.text}\n"
        for group in part.groups:
            results = figures[part.name].get(group.name, {})
            section += f"\n### {group.title}\n\n" + (f"{group.text}\n\n" if group.text else "")
            if not results:
                section += MISSING
                continue
            targets += targets_of(part, group, results)
            if isinstance(group, Scaling):
                section += scaling_table(group, results) + "\n" + draw_scaling(part, group, results, folder)
            elif isinstance(group, Training):
                section += training_table(group, results) + "\n" + draw_plots(part, group, results, folder)
            else:
                section += throughput_table(group, results)
            missing = [run.title for run in group.runs if run.name not in results]
            section += f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""
        sections.append(section + (f"\n{part.remarks}\n" if part.remarks else ""))

    text = INTRODUCTION + "\n" + (conditions(parts, figures) if targets else MISSING) + "\n## Targets\n\n"
    text += table(["", "measured", "target", "holds"],
                  [[*row[:3], "yes" if row[3] else "**no**"] for row in targets]) if targets else MISSING
    text += "\n" + "\n".join(sections)
    text += "\n## Hyperparameters\n\nFields that are not named have their [defaults](manifest.md#how-updates-are-applied).\n\n"
    text += hyperparameters(parts, figures) if targets else MISSING
    (docs / "experiments.md").write_text(text, encoding="utf-8")
    return [f"{what}: {figure}, expected {target}" for what, figure, target, holds in targets if not holds]
