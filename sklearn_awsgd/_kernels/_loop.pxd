# The one loop of the package and the two interfaces that meet in it.
#
# A problem knows losses, parameters and steps, and nothing of sampling.
# A sampler knows indices, densities and norms, and nothing of models.

cdef packed struct Point:
    # One draw x, and what became of it.
    Py_ssize_t i        # row; set by Sampler.draw
    Py_ssize_t j        # column, where points are entries (i, j) of a matrix
    Py_ssize_t entry    # where the value of entry (i, j) is stored; -1 for nowhere
    Py_ssize_t origin   # stratum the point was drawn from
    double q            # density dQ/dP at the state of this draw
    double loss         # f(x; w) before the step; set by Problem.step
    double norm2        # ||d||^2, d = grad f(x; w) / q; set by Problem.step
    double cost         # what the draw took; 1 unless somebody knows better


cdef class Costs:
    # One number for each row; or for each row and column, which add; or for each cell.
    cdef const double[::1] rows, columns, entries
    cdef const double[:, ::1] cells
    cdef double of(self, const Point* x) noexcept nogil


cdef class Problem:
    # w <- w - rho d, with d = weight * grad f(x; w). Fills x.loss and x.norm2.
    cdef void step(self, Point* x, double weight) noexcept nogil
    # Asks for the memory that a later step will read: a hint, without effect.
    cdef void prefetch(self, const Point* x) noexcept nogil
    # Brings lazily kept parameters up to date; called at the end of a run.
    cdef void flush(self) noexcept nogil
    # For Python:
    # penalty()      what the objective has beside E_P[f]; 0 by default.
    # first_norms2() ||grad f||^2 of every row at the start, up to a common factor: what
    #                samplers of rows may begin from. Problems of rows alone have it.
    # step_points(points, weights)
    #                steps points one after the other: the batch door.


cdef class Sampler:
    # Draws that share one state even for batch_size=1: a sampler whose tau moves slowly
    # saves the work of moving it at each draw.
    cdef readonly Py_ssize_t patience
    # Draws x ~ Q_tau: sets x.i (and x.j), x.origin and x.q. Does not move tau.
    cdef void draw(self, Point* x) noexcept nogil
    # Records ||d||^2 of a draw. Does not move tau: a batch shares one state.
    cdef void observe(self, const Point* x) noexcept nogil
    # Moves tau by what was observed since the last call.
    cdef void adapt(self) noexcept nogil
    # For Python:
    # draw_points(n), observe_points(points)
    #                draw; observe and adapt: the batch door.
    # stratum_probabilities()
    #                probabilities of what `origin` counts; one stratum by default.
    # densities()    q of every point there is; zero where nothing can be drawn. Every
    #                sampler has its own.
