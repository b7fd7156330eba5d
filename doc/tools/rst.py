"""Tables of reStructuredText: rows, dicts of a benchmark, and templates of the columns.

A column is a title with a template such as ``"{seconds:~} s"``, or with a function that
makes text of a row.
"""

import math
import string


def number(value, digits=2):
    """Return a number as text with some digits, a dash if it was not reached."""
    if isinstance(value, str):
        return value
    if value is None or not math.isfinite(value):
        return "--"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


class Template(string.Formatter):
    """Texts with the values of a row.

    ``{x:~3}`` is a number of three digits, ``{x:~}`` of two, a dash where it is absent;
    ``{x:percent}`` has as many decimals as it needs. All else is as in `str.format`.
    """

    def get_value(self, key, args, row):
        # A field that is a number would be taken for a place in a list.
        return row.get(str(key))

    def format_field(self, value, how):
        if how.startswith("~"):
            return number(value, int(how[1:] or 2))
        if how == "percent":
            return f"{100 * value:g} %"
        if value is None:
            raise KeyError("a template names what the row does not have")
        return super().format_field(value, how)


def table(rows, *columns):
    """Return a simple table of reStructuredText."""
    fill = Template().vformat
    cells = [[title for title, _ in columns]]
    cells += [
        [cell(row) if callable(cell) else fill(cell, (), row) for _, cell in columns]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("=" * width for width in widths)

    def line(row):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([rule, line(cells[0]), rule, *map(line, cells[1:]), rule]) + "\n"


def pivot(rows, line, column, cell):
    """Return a row for each value of `line`, with a cell for each of `column`."""
    found = {}
    for row in rows:
        found.setdefault(row[line], {line: row[line]})[str(row[column])] = cell(row)
    return list(found.values())


def times(peer, ours):
    """Return how many times as long a peer took."""
    return f"{number(peer / ours)}x" if math.isfinite(peer) else "--"


def against(peers):
    """Return columns with the times of peers over ours."""
    return [
        (title, lambda row, peer=peer: times(row[peer], row["ours"]))
        for peer, title in peers.items()
    ]


def of_keys(keys, how="~"):
    """Return columns of numbers, from keys and their titles."""
    return [(title, f"{{{key}:{how}}}") for key, title in keys.items()]
