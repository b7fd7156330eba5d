"""Rows that were asked for, until their values are told."""

import numpy as np

from sklearn_awsgd._importance.stratified import StratifiedRounds


class Outstanding:
    """Rounds whose rows are out for evaluation.

    A round counts once all of its rows have been told: those of a round that come first
    may be the easy ones.

    Parameters
    ----------
    rounds : Rounds
        What asks; it has to draw rows without replacement.
    """

    def __init__(self, rounds):
        if not isinstance(rounds, StratifiedRounds):
            raise ValueError(
                "ask() is for rows drawn without replacement: sampler='auto', "
                "'uniform', 'label' or 'strata' with control_variate=True; entries and "
                "locations need a loss that is called."
            )
        self._rounds = rounds
        # For each row the round and the place in it; of each round what is missing.
        self._places, self._asked, self._values = {}, {}, {}
        self._missing = {}
        self._n_asked = 0

    def __len__(self):
        """Return how many rows have been asked for and not been told."""
        return len(self._places)

    def ask(self, size):
        """Return rows to evaluate, as many as wanted or as are left."""
        asked = self._rounds.ask(size)
        key, self._n_asked = self._n_asked, self._n_asked + 1
        self._asked[key], self._missing[key] = asked, len(asked.rows)
        shape = (len(asked.rows), self._rounds.target.n_values)
        self._values[key] = np.zeros(shape)
        self._places.update({int(i): (key, k) for k, i in enumerate(asked.rows)})
        return asked.rows.copy()

    def tell(self, rows, values):
        """Take the values of some rows; return whether a round is complete."""
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be positions, as ask() gave them, got {rows!r}."
            )
        values = self._rounds.pool.integrand.check_told(values, len(rows))
        strange = [int(i) for i in rows if int(i) not in self._places]
        if strange or len(np.unique(rows)) < len(rows):
            which = f"row {strange[0]}" if strange else "one row more than once"
            raise ValueError(
                f"{which} was told, but each row is asked for once and told once; tell "
                "rows that ask() gave and that have not been told yet."
            )
        complete = []
        for row, value in zip(rows, values, strict=True):
            key, place = self._places.pop(int(row))
            self._values[key][place] = value
            self._missing[key] -= 1
            if not self._missing[key]:
                complete.append(key)
        for key in complete:
            asked = self._asked.pop(key)
            del self._missing[key]
            self._rounds.pool.put(asked.rows, self._values.pop(key))
            self._rounds.tell(asked)
        return bool(complete)
