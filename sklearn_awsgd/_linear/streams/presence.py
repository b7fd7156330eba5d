"""Which classes of a stream have stopped coming, or have only begun to come.

In a stream that is sorted by class the last rows tell what rows of their class are
like, but not how many there are of it. What follows the last rows, as windows and
calibrations do, has to leave them out.
"""

import numpy as np

# A class is missing when so many rows of it should have come since its last, by its
# share of all rows. By chance that happens once in half a billion times, which leaves
# room for shares that drift.
MISSED = 20.0
# Rows of a class with which it has begun to come.
FIRST_ROWS = 10
# Missing classes of softmax regression count when they have this share of all rows: one
# of many that is gone for good must not.
MISSING_SHARE = 0.3


class Presence:
    """Rows of each class of a problem, and those since the last of it.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    """

    def __init__(self, n_classes):
        # Lists: for single rows they are quicker than arrays.
        self.seen, self.since = [0] * n_classes, [0] * n_classes

    @property
    def have_come(self):
        """Whether all classes have begun to come."""
        return min(self.seen) >= FIRST_ROWS

    def observe(self, codes):
        """Take in the classes of some rows.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            The classes, from 0 on.

        Returns
        -------
        missing : bool
            Whether classes are missing.
        begun : bool
            Whether both of two classes had begun to come before, or neither.
        """
        n, n_classes = len(codes), len(self.seen)
        begun = [seen >= FIRST_ROWS for seen in self.seen]
        for k, count in enumerate(np.bincount(codes, minlength=n_classes).tolist()):
            if count == 0:
                self.since[k] += n
            elif count == n:
                self.since[k] = 0
            else:
                self.since[k] = int((codes[::-1] == k).argmax())
            self.seen[k] += count
        total, share = sum(self.seen), 0.0
        for seen, since in zip(self.seen, self.since, strict=True):
            if since * seen > MISSED * total:
                share += seen / total
        if n_classes > 2:
            return share > MISSING_SHARE, True
        return share > 0, begun[0] == begun[1]

    def merge(self, other):
        """Take in the rows of another stream."""
        self.seen = [sum(pair) for pair in zip(self.seen, other.seen, strict=True)]
        self.since = [min(pair) for pair in zip(self.since, other.since, strict=True)]
