"""How the package is built: who knows whom, how long files are, what names mean."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification

import sklearn_awsgd
from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDPolicyGradient,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)

PACKAGE = Path(sklearn_awsgd.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
KERNELS = sorted(PACKAGE.rglob("*.pyx"))
TREES = {path: ast.parse(path.read_text()) for path in MODULES}
# Modules with estimators, by the folder that may not know them otherwise.
ESTIMATORS = {
    "_linear": {"base", "classifier", "regressor"},
    "_factorization": {"factorization", "model", "entry_regressor"},
    "_importance": {"estimator"},
    "_policy": {"policy_gradient"},
}
FAMILIES = tuple(f"sklearn_awsgd.{name}" for name in (*ESTIMATORS, "_partitions"))
MOST_LINES, MOST_KERNEL_LINES, MOST_ARGUMENTS = 500, 400, 8


def name_of(path):
    """Return the name of a module or package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Return the modules of the package that a module imports when it is imported."""
    known = {name_of(other) for other in MODULES}
    found = set()
    for node in TREES[path].body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("sklearn_awsgd"):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & known) or {node.module}
    return found


def lines_of_docstrings(tree):
    """Return how many lines of a module are docstrings."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    documented = [
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, kinds) and ast.get_docstring(node)
    ]
    return sum(text.end_lineno - text.lineno + 1 for text in documented)


def constants_of(path):
    """Yield names and values of the constants of a module."""
    for node in TREES[path].body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
            for name, part in pairs:
                if isinstance(name, ast.Name) and name.id.isupper():
                    yield name.id, ast.unparse(part)


def test_files_are_short():
    for path, tree in TREES.items():
        n_lines = len(path.read_text().splitlines())
        assert n_lines - lines_of_docstrings(tree) <= MOST_LINES, path
    for path in KERNELS:
        assert len(path.read_text().splitlines()) <= MOST_KERNEL_LINES, path


def test_constructors_take_few_arguments_by_position():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            where = path, getattr(node, "lineno", None)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                assert len(node.args.args) - 1 <= MOST_ARGUMENTS, where
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                is_class = re.match("[A-Z][a-z]", node.func.id)
                assert not is_class or len(node.args) <= MOST_ARGUMENTS, where
    for path in KERNELS:
        for arguments in re.findall(r"def __c?init__\(([^)]*)\)", path.read_text()):
            # Commas inside of brackets are of types.
            plain = re.sub(r"\[[^\]]*\]", "", arguments.partition("*")[0])
            names = [part for part in plain.split(",") if part.strip()]
            assert len(names) - 1 <= MOST_ARGUMENTS, (path, arguments)


@pytest.mark.parametrize(
    "Estimator",
    [
        AWSGDClassifier,
        AWSGDRegressor,
        AWSGDMatrixFactorization,
        MinVarianceImportanceEstimator,
        AWSGDPolicyGradient,
    ],
)
def test_few_classes_make_an_estimator(Estimator):
    own = [c for c in Estimator.__mro__ if c.__module__.startswith("sklearn_awsgd")]
    assert len(own) <= 3


def test_nothing_below_an_estimator_knows_one():
    for path in MODULES:
        folder, modules = path.relative_to(PACKAGE).parts[0], imported(path)
        upper = ESTIMATORS.get(folder, set())
        if path.stem not in upper:
            assert not modules & {f"sklearn_awsgd.{folder}.{m}" for m in upper}, path
        if folder in ("_solver", "_kernels", "samplers", "_spaces.py"):
            assert not [m for m in modules if m.startswith(FAMILIES)], path


def test_phases_know_tasks_by_their_interface():
    paths = [p for p in MODULES if {"phases", "_solver", "_kernels"} & {*p.parts}]
    assert len(paths) > 15
    for path in paths:
        last = {module.rpartition(".")[2] for module in imported(path)}
        assert not last & {"tasks", "train", "fitting", "samplers"}, path
        functions = (n for n in ast.walk(TREES[path]) if isinstance(n, ast.FunctionDef))
        names = {a.arg for f in functions for a in (*f.args.args, *f.args.kwonlyargs)}
        assert "estimator" not in names, path


def test_kernels_know_kernels_alone():
    for path in KERNELS:
        modules = re.findall(r"from (sklearn_awsgd[.\w]*) c?import", path.read_text())
        assert all(m.startswith("sklearn_awsgd._kernels") for m in modules), path


def test_imports_go_one_way():
    graph = {name_of(path): imported(path) for path in MODULES}
    done = set()

    def visit(module, above):
        assert module not in above, f"{above} -> {module}"
        if module not in done:
            for other in graph.get(module, ()):
                visit(other, [*above, module])
            done.add(module)

    for module in graph:
        visit(module, [])


def test_a_constant_has_one_value():
    values = {}
    for path in MODULES:
        for name, value in constants_of(path):
            values.setdefault(name, {})[name_of(path)] = value
    for path in KERNELS:
        pattern = r"^ *(?:cdef \w+ )?([A-Z][A-Z_0-9]+) = (.+)$"
        for name, value in re.findall(pattern, path.read_text(), re.MULTILINE):
            values.setdefault(name, {})[name_of(path)] = value
    assert len(values) > 200
    assert not {n: where for n, where in values.items() if len({*where.values()}) > 1}


def test_a_class_has_a_name_of_its_own():
    names = [
        node.name
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    for path in KERNELS:
        names += re.findall(r"^cdef class (\w+)", path.read_text(), re.MULTILINE)
    assert len(names) > 100
    assert sorted(names) == sorted({*names})


def calls_of(function):
    """Return what a call of the package calls, "module.function", in this order."""
    found = []

    def look(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            found.append(f"{Path(code.co_filename).stem}.{code.co_name}")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(before)
    return list(dict.fromkeys(found))


def fit_linear():
    X, y = make_classification(2000, random_state=0)
    AWSGDClassifier(random_state=0).fit(X, y)


def fit_factorization():
    X = np.add.outer(np.arange(20.0), np.arange(10.0))
    AWSGDMatrixFactorization(2, random_state=0).fit(X)


def fit_importance():
    mean = MinVarianceImportanceEstimator(
        loss=lambda x: x[:, 0], max_evaluations=200, rtol=None, random_state=0
    )
    mean.fit(np.random.default_rng(0).normal(size=(1000, 2)))


GUIDE = PACKAGE.parent / "doc" / "developer.rst"


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not in this folder")
@pytest.mark.parametrize(
    ("title", "fit", "n_least"),
    [
        ("Of the linear estimators", fit_linear, 10),
        ("Of the factorization", fit_factorization, 6),
        ("Of the importance estimator, which has no model", fit_importance, 4),
    ],
)
def test_the_way_of_fit_is_as_the_guide_tells(title, fit, n_least):
    block = GUIDE.read_text().partition(f"{title}::\n\n")[2].partition("\n\n")[0]
    told = re.findall(r"^ +(\w+\.\w+)", block, re.MULTILINE)
    kinds = ast.FunctionDef, ast.ClassDef
    defined = {
        f"{path.stem}.{node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    }
    stems = {path.stem for path in TREES}
    assert {name for name in told if name.partition(".")[0] in stems} <= defined
    calls = calls_of(fit)
    taken = [name for name in told if name in calls]
    assert len(taken) >= n_least
    assert sorted(taken, key=calls.index) == taken
