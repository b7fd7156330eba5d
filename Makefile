# `make demo` and `make test` need Python 3.11 or later, a C compiler and a package
# index; everything is installed into virtual environments in this directory.

PYTHON ?= python3
BIN := .venv/bin
OLDEST := .venv-oldest
KERNELS := $(wildcard sklearn_awsgd/_kernels/*.pyx sklearn_awsgd/_kernels/*.pxd)
# The requirements of one extra of setup.cfg: installed apart from the package, so that
# a new extra does not compile the package again.
EXTRA = $(BIN)/python -c "import configparser as c, sys; p = c.ConfigParser(); \
	p.read('setup.cfg'); print(*p['options.extras_require'][sys.argv[1]].split())"
BUILD_REQUIRES = $(BIN)/python -c "import tomllib; \
	print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])"
# The lower bounds of setup.cfg.
OLDEST_VERSIONS := scikit-learn==1.6.0 numpy==1.26.4 scipy==1.11.4 joblib==1.3.2

# One thread each: the checks fit thousands of tiny models.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-newest test-oldest lint doc stubs tables wheel bench soak sanitize \
	mutants coverage clean

demo: .venv/extra-plot
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/demo_digits.py

test: test-newest test-oldest

test-newest: .venv/extra-test .venv/extra-doc .venv/extra-notebook
	$(BIN)/python -m pytest tests -n auto
	$(BIN)/python -m pytest --doctest-modules sklearn_awsgd
	$(BIN)/python -m pytest --doctest-glob="*.rst" README.rst doc

# The package is that of the source tree, compiled for .venv with the same Python.
test-oldest: $(OLDEST)/installed .venv/package
	$(OLDEST)/bin/python -m pytest tests/test_estimator_checks.py

lint: .venv/extra-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint sklearn_awsgd
	$(BIN)/codespell sklearn_awsgd tests benchmarks examples doc Makefile *.rst

# The pages, in doc/_build/html; the examples are run on the way. `make doc` in a shell
# with SKLEARN_AWSGD_DATA runs them on the real data.
doc: .venv/extra-doc
	$(BIN)/python -m sphinx -b html -W --keep-going doc doc/_build/html

# The table of the README, from benchmarks/results.
tables:
	$(PYTHON) doc/tools/tables.py

# The type stubs, from signatures, tables of parameters and docstrings.
stubs: .venv/package
	$(BIN)/python doc/tools/stubs.py

# A wheel in dist/, installed and tested in an environment of its own.
wheel: .venv/package
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet dist/*.whl pytest hypothesis pandas
	cd dist && ../.venv-wheel/bin/python -m pytest -q -p no:cacheprovider \
		-c ../setup.cfg --rootdir .. ../tests/test_estimator_checks.py \
		../tests/test_classifier.py

# The real data are read from the folder that SKLEARN_AWSGD_DATA names.
bench: .venv/package .venv/extra-test
	$(BIN)/python benchmarks/bench_step_cost.py
	$(BIN)/python benchmarks/bench_time_to_optimum.py
	$(BIN)/python benchmarks/bench_every_loss.py
	$(BIN)/python benchmarks/bench_softmax.py
	$(BIN)/python benchmarks/bench_sampling.py
	$(BIN)/python benchmarks/bench_factorization.py
	$(BIN)/python benchmarks/bench_ratings.py
	$(BIN)/python benchmarks/bench_importance.py
	$(BIN)/python benchmarks/bench_importance_peers.py --anytime 200
	$(BIN)/python benchmarks/bench_streams.py
	$(BIN)/python benchmarks/bench_policy.py
	$(BIN)/python benchmarks/bench_scale.py
	$(BIN)/python benchmarks/bench_time_aware.py
	$(BIN)/python benchmarks/bench_dask.py
	$(BIN)/python benchmarks/bench_small.py
	$(BIN)/python benchmarks/bench_threads.py

# The long forms of what the tests do in short: each takes from minutes to hours. What
# they compile, they compile in copies of the tree.
soak: .venv/extra-test
	$(BIN)/python tests/tools/soak.py --store
	$(BIN)/python benchmarks/bench_streams.py --only soak

sanitize: .venv/extra-test
	$(BIN)/python tests/tools/sanitize.py

mutants: .venv/extra-test
	$(BIN)/python tests/tools/mutants.py

coverage: .venv/extra-test .venv/extra-coverage
	$(BIN)/python tests/tools/cover.py --least 95

clean:
	rm -rf .venv .venv-oldest .venv-wheel build dist doc/_build doc/auto_examples
	rm -rf doc/generated doc/sg_execution_times.rst *.egg-info
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	rm -f sklearn_awsgd/_kernels/*.c sklearn_awsgd/_kernels/*.so demo*.png
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without build isolation, so that NumPy and SciPy are fetched once.
.venv/package: setup.py setup.cfg pyproject.toml $(KERNELS)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $$($(BUILD_REQUIRES))
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

# The linters read the sources only: nothing has to be compiled for them.
.venv/extra-lint: setup.cfg
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $$($(EXTRA) lint)
	touch $@

.venv/extra-%: .venv/package
	$(BIN)/python -m pip install --quiet $$($(EXTRA) $*)
	touch $@

$(OLDEST)/installed: Makefile setup.cfg
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet $(OLDEST_VERSIONS) \
		pytest hypothesis pandas
	touch $@
