"""Type stubs of the public modules, written by ``make stubs``.

Signatures are those of the code. Parameters of an estimator have the types of its
table of parameters, the same that refuses wrong values at run time; fitted attributes
those of the docstring. A test compares the files with what is written here.
"""

import importlib
import inspect
import re
from pathlib import Path

from sklearn import base
from sklearn.utils.metaestimators import available_if

from sklearn_awsgd import _validation

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "sklearn_awsgd": "sklearn_awsgd/__init__.pyi",
    "sklearn_awsgd.samplers": "sklearn_awsgd/samplers/__init__.pyi",
    "sklearn_awsgd.datasets": "sklearn_awsgd/datasets.pyi",
    "sklearn_awsgd.model_selection": "sklearn_awsgd/model_selection.pyi",
    "sklearn_awsgd.display": "sklearn_awsgd/display/__init__.pyi",
}
HEAD = '''\
"""Written by `make stubs`: change the code and run it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
)
'''
MIXINS = ("ClassifierMixin", "RegressorMixin", "TransformerMixin", "BaseEstimator")
# By name, wherever a parameter of that name occurs.
PARAMETERS = {
    "X": "Any",
    "y": "ArrayLike",
    "random_state": "int | RandomState | None",
    "n_jobs": "int | None",
    "verbose": "int",
    "sampler": "Any",
    "loss": "Any",
    "class_weight": "Mapping[Any, float] | Literal['balanced'] | None",
    "scoring": "str | Callable[..., float] | None",
    "classes": "ArrayLike",
    "coef_init": "ArrayLike",
    "intercept_init": "ArrayLike",
    "sample_weight": "ArrayLike",
    "sample_weight_val": "ArrayLike",
    "strata": "ArrayLike",
    "y_val": "ArrayLike",
    "other": "Self",
    "estimators": "Mapping[str, Any] | Sequence[Any]",
}
ARRAYS = "decision_function predict_proba predict_log_proba inverse_transform"
RETURNS = {
    **dict.fromkeys(
        "fit partial_fit merge set_params sparsify densify plot from_estimator "
        "from_estimators".split(),
        "Self",
    ),
    **dict.fromkeys(ARRAYS.split(), "NDArray[Any]"),
    "score": "float",
}


def table_of(cls):
    """Return the kinds of the parameters of a class, with those it inherits."""
    tables = [vars(c).get("_parameters", {}) for c in reversed(cls.__mro__)]
    return {name: kind for table in tables for name, kind in table.items()}


def type_of_kind(kind):
    """Return the type that a kind of `_validation` stands for."""
    if isinstance(kind, _validation.Options):
        words = ", ".join(repr(option) for option in kind.options)
        return f"Literal[{words}]"
    if isinstance(kind, _validation.Real):
        found = ["int" if kind.integer else "float"]
        found += [f"Literal[{', '.join(map(repr, kind.words))}]"] * bool(kind.words)
        found += ["bool"] * kind.or_boolean + ["None"] * kind.optional
        return " | ".join(found)
    return "bool" if isinstance(kind, _validation.Boolean) else "Any"


def type_of_default(default):
    """Return the type that a default value suggests."""
    known = {bool: "bool", int: "int", float: "float", str: "str"}
    return known.get(type(default), "Any")


def annotated(parameter, kinds):
    """Return a parameter as the stub has it."""
    name, default = parameter.name, parameter.default
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return f"{'*' * (1 + (parameter.kind == parameter.VAR_KEYWORD))}{name}: Any"
    if name in kinds:
        text = type_of_kind(kinds[name])
    elif name in PARAMETERS:
        text = PARAMETERS[name]
    else:
        text = "Any" if default is parameter.empty else type_of_default(default)
    if default is parameter.empty:
        return f"{name}: {text}"
    if default is None and "None" not in text and text != "Any":
        text += " | None"
    plain = default is None or isinstance(default, (bool, int, str))
    plain = plain or (isinstance(default, float) and default == default)
    return f"{name}: {text} = {repr(default) if plain else '...'}"


def function(name, found, kinds=(), returns=None, decorator=""):
    """Return the stub of a function or a method."""
    parts, starred = [], False
    for parameter in inspect.signature(found).parameters.values():
        starred |= parameter.kind == parameter.VAR_POSITIONAL
        if parameter.kind == parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        bare = parameter.name in ("self", "cls") and not parts
        parts.append(parameter.name if bare else annotated(parameter, kinds))
    returns = returns or RETURNS.get(name, "Any")
    line = f"{decorator}def {name}({', '.join(parts)}) -> {returns}: ..."
    if len(line) <= 80:
        return line
    listed = "".join(f"        {part},\n" for part in parts)
    return f"{decorator}def {name}(\n{listed}    ) -> {returns}: ..."


def attributes(cls):
    """Yield names and types of the attributes that the docstring lists."""
    section = (inspect.getdoc(cls) or "").partition("\nAttributes\n")[2]
    section = re.split(r"\n\w[\w ]*\n-{3,}\n", section.partition("\n")[2])[0]
    known = {"ndarray": "NDArray[Any]", "int": "int", "float": "float", "str": "str"}
    for line in section.splitlines():
        names, colon, text = line.partition(" : ")
        if not colon or line.startswith(" "):
            continue
        words = text.split()
        found = known.get(words[0].rstrip(","), "Any")
        if text.startswith("dict of ndarray"):
            found = "dict[str, NDArray[Any]]"
        if " or " in text:
            found = "Any"
        yield from ((name.strip(), found) for name in names.split(","))


def class_lines(cls):
    """Yield the lines of the stub of a class."""
    bases = [name for name in MIXINS if issubclass(cls, getattr(base, name))]
    parents = [c.__name__ for c in cls.__mro__[1:] if c.__name__ == "BaseSampler"]
    bases = parents or bases
    yield (
        f"class {cls.__name__}({', '.join(bases)}):"
        if bases
        else (f"class {cls.__name__}:")
    )
    written = ["__init__"]
    if cls.__init__ is not object.__init__:
        yield "    " + function("__init__", cls.__init__, table_of(cls), "None")
    for name, text in attributes(cls):
        written.append(name)
        yield f"    {name}: {text}"
    for name in sorted(dir(cls)):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") or name in written:
            continue
        if isinstance(found, int):
            yield f"    {name}: ClassVar[int]"
        inner = getattr(found, "__func__", found)
        if isinstance(found, type(available_if(bool)(len))):
            inner = found.fn
        if not inspect.isfunction(inner):
            continue
        if not inner.__module__.startswith("sklearn_awsgd"):
            continue
        decorator = "@classmethod\n    " if isinstance(found, classmethod) else ""
        yield "    " + function(name, inner, decorator=decorator)
    yield "    ..."


def stub(name):
    """Return the text of the stub of a module."""
    module = importlib.import_module(name)
    parts = [HEAD]
    names = sorted(module.__all__, key=lambda name: (name != "BaseSampler", name))
    for public in names:
        found = getattr(module, public)
        if inspect.isclass(found):
            parts.append("\n".join(class_lines(found)))
        else:
            parts.append(function(public, found))
    listed = ", ".join(repr(public) for public in sorted(module.__all__))
    version = "__version__: str\n" if hasattr(module, "__version__") else ""
    return "\n\n".join(parts) + f"\n\n__all__ = [{listed}]\n{version}"


if __name__ == "__main__":
    for module, path in FILES.items():
        (ROOT / path).write_text(stub(module))
