"""
Do counts need a loss of their own?
===================================

A document is a row of word counts. Most counts are zero, and a sparse matrix does not
store them, but they are observed: ``unstored="zero"``, the default. With the squared
error frequent words and long documents dominate; with ``loss="poisson"`` each entry is
a count with an expectation, and rare words speak too.

The documents are drawn from 8 topics. Which factors tell the topics apart, those of
TruncatedSVD, of the squared error or of the Poisson loss, when documents get shorter?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import AWSGDMatrixFactorization

# %%
# Words have the frequencies of Zipf's law; a topic makes some of them more frequent.

rng = np.random.default_rng(0)
n_documents, n_words, n_topics = 600, 400, 8
zipf = 1 / np.arange(1, n_words + 1)
topics = zipf * np.exp(rng.normal(scale=1.0, size=(n_topics, n_words)))
topics /= topics.sum(axis=1, keepdims=True)
labels = rng.integers(n_topics, size=n_documents)


def documents(length):
    """Return the counts of documents of about this many words."""
    lengths = length * rng.lognormal(sigma=1.0, size=(n_documents, 1))
    return sparse.csr_array(rng.poisson(lengths * topics[labels]).astype(float))


def models():
    shared = {"n_components": n_topics, "random_state": 0, "max_iter": 15, "tol": None}
    return {
        "TruncatedSVD": TruncatedSVD(n_topics, random_state=0),
        "squared error": AWSGDMatrixFactorization(**shared),
        "Poisson, with biases": AWSGDMatrixFactorization(
            loss="poisson", fit_bias=True, **shared
        ),
    }


# %%
lengths = [20, 40, 80, 160]
accuracy = {name: [] for name in models()}
for length in lengths:
    X = documents(length)
    for name, model in models().items():
        pipeline = make_pipeline(model, StandardScaler(), LogisticRegression())
        accuracy[name].append(cross_val_score(pipeline, X, labels, cv=3).mean())
    print(length, {name: round(values[-1], 3) for name, values in accuracy.items()})

# %%
figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, values in accuracy.items():
    axis.plot(lengths, values, marker="o", label=name)
axis.axhline(1 / n_topics, color="gray", linestyle=":", label="chance")
axis.set(
    xscale="log",
    xlabel="words in a document",
    ylabel="accuracy of the topic (3-fold)",
    title="Topics from the factors of word counts",
)
axis.set_xticks(lengths, [str(length) for length in lengths])
axis.minorticks_off()
axis.legend()
plt.show()

# %%
# With 40 words and more the Poisson factors tell the topics apart best; shorter ones
# have too few words for any of the three. With the squared error TruncatedSVD and the
# factorization here are alike, and TruncatedSVD is much quicker.
