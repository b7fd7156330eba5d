"""The order of the gallery: the tour, then by topics, which file names begin with."""

from sphinx_gallery.sorting import FileNameSortKey


class TourFirst(FileNameSortKey):
    """Sorts examples by name, behind the tour."""

    def __call__(self, filename):
        """Return the key of a file."""
        return f"{filename != 'plot_tour.py'} {filename}"
