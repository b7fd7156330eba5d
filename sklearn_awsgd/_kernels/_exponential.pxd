# exp without a branch or a call, so that loops compute several at once.

cdef extern from *:
    """
    #include <string.h>
    #ifndef AWSGD_EXPONENTIAL
    #define AWSGD_EXPONENTIAL
    enum {N_EXP = 14};
    static const double reciprocals_of_factorials[N_EXP] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
        1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0
    };

    /* exp(-size) for size >= 0, as if it were at most 700: the series of Taylor, to
       1e-16, of exp(r) = exp(-size) / 2^power with |r| <= log(2) / 2. */
    static inline double exp_of_minus(double size) {
        /* Adding it leaves a whole number in the last bits. */
        const double shift = 6755399441055744.0;
        double shifted, power, r, e, scale;
        long long bits;
        int j;
        size = size > 700.0 ? 700.0 : size;
        shifted = size * -1.4426950408889634 + shift;
        power = shifted - shift;
        r = power * -6.93147180369123816490e-01 - size;
        r -= power * 1.90821492927058770002e-10;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (long long) (((unsigned long long) bits + 1023) << 52);
        memcpy(&scale, &bits, sizeof scale);
        e = reciprocals_of_factorials[0];
        for (j = 1; j < N_EXP; j++) e = e * r + reciprocals_of_factorials[j];
        return e * scale;
    }
    #endif
    """
    double exp_of_minus(double size) noexcept nogil
