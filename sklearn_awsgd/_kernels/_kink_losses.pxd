# Losses with kinks: zero from `low` to `high`, lines of slope 1 beyond. All without
# branches, which nobody could predict.

cdef extern from *:
    """
    #ifndef AWSGD_KINK_LOSSES
    #define AWSGD_KINK_LOSSES
    /* The a that is a slope of the loss at s - width a. */
    static inline double slope_beyond(double s, double width, double low, double high) {
        double above = (s - high) / width, below = (s - low) / width;
        above = above > 0.0 ? above : 0.0;
        above = above < 1.0 ? above : 1.0;
        below = below < 0.0 ? below : 0.0;
        below = below > -1.0 ? below : -1.0;
        return above + below;
    }

    /* f(z) */
    static inline double height(double z, double low, double high) {
        double below = low - z, above = z - high;
        below = below > 0.0 ? below : 0.0;
        above = above > 0.0 ? above : 0.0;
        return below + above;
    }

    /* f*(a); ends at infinity belong to no slope. */
    static inline double conjugate_at(double a, double low, double high) {
        double end = a < 0.0 ? low : high;
        return a * (a != 0.0 ? end : 0.0);
    }
    #endif
    """
    double slope_beyond(double s, double width, double low, double high) noexcept nogil
    double height(double z, double low, double high) noexcept nogil
    double conjugate_at(double a, double low, double high) noexcept nogil
