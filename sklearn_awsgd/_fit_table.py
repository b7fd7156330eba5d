"""How a fit went, as a table below an estimator's diagram in a notebook."""

from html import escape

import numpy as np

# What of a history is shown, and how it is named, where it is there.
SHOWN = {
    "problem": "problem",
    "phase": "phase",
    "draws": "draws",
    "episodes": "episodes",
    "steps": "steps",
    "evaluations": "evaluations",
    "seconds": "seconds",
    "objective": "objective",
    "duality_gap": "gap",
    "estimate": "estimate",
    "low": "from",
    "high": "to",
    "return": "return",
    "success": "success",
    "variance_gain": "variance gain",
    "effective_sample_size": "effective sample size",
}
CELL = "style='text-align: right; padding: 0.1em 0.7em'"
# Rows that are shown; a fit of many classes has more.
ROWS_SHOWN = 12


def fit_rows(history):
    """Return the names of the columns and the rows: the end of each phase of a problem.

    Parameters
    ----------
    history : dict of ndarray
        ``history_`` of an estimator.

    Returns
    -------
    names : list of str
        Names of the columns.
    rows : list of list
        Their values, each the last of its phase that is known; None where none is.
    """
    n_records = len(history["seconds"])
    nothing = np.zeros(n_records, dtype=int)
    keys = zip(
        history.get("problem", nothing), history.get("phase", nothing), strict=True
    )
    groups = {}
    for k, key in enumerate(keys):
        groups.setdefault(key, []).append(k)
    shown = [name for name in SHOWN if name in history]
    if len({problem for problem, _ in groups}) == 1 and "problem" in shown:
        shown.remove("problem")
    table = {name: [_last(history[name][k]) for k in groups.values()] for name in shown}
    table = {name: v for name, v in table.items() if any(x is not None for x in v)}
    rows = [list(row) for row in zip(*table.values(), strict=True)]
    return [SHOWN[name] for name in table], rows


def _last(values):
    """Return the last value that is known, or None."""
    if values.dtype.kind in "fc":
        values = values[~np.isnan(values)]
    return values[-1] if len(values) else None


def fit_html(history):
    """Return the table of a history as HTML."""
    names, rows = fit_rows(history)
    left = len(rows) - ROWS_SHOWN
    head = "".join(f"<th {CELL}>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td {CELL}>{_text(value)}</td>" for value in row) + "</tr>"
        for row in rows[:ROWS_SHOWN]
    )
    title = "Fit, at the end of each phase" if "phase" in names else "Fit, at its end"
    more = f"<p>and {left} rows more, in history_</p>" if left > 0 else ""
    return (
        "<details open class='sklearn-awsgd-fit' style='font: 0.9em monospace'>"
        f"<summary>{title}</summary><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        f"</table>{more}</details>"
    )


def _text(value):
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, np.integer) else escape(f"{value}")
