from sklearn_awsgd._kernels._loop cimport Problem
from sklearn_awsgd._kernels._losses cimport Loss
from sklearn_awsgd._kernels._rows cimport Numbers, Rows
from sklearn_awsgd._kernels._steps cimport Steps


cdef class LinearProblem(Problem):
    cdef Rows rows
    cdef Loss loss
    cdef Numbers y, norms2
    cdef readonly Steps steps
    # Factor of the loss, as for the chunks of a stream that weigh more than others.
    cdef double loss_scale
