"""
Does the sampler follow a stream that changes?
==============================================

Images of handwritten zeros come in a stream, a few at a time. Between draw 10,000 and
draw 20,000 ones replace them. The model factorizes the stream as it comes; the sampler
learns which pixels are worth drawing. If it works, its pixel probabilities show a zero
that fades into a one. This is the experiment of the paper's Figure 6.

The images are scikit-learn's digits; where the environment variable
SKLEARN_AWSGD_DATA names a folder with ``mnist.npz`` (arrays ``X_train`` and
``y_train``), they are those of MNIST.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd.samplers import RowColumnSampler

# %%
# The images, and a stream of them. Each call of ``partial_fit`` gets as many images as
# have about 2,000 pixels, which is one pass of about 2,000 draws.

path = Path(os.environ.get("SKLEARN_AWSGD_DATA", ""), "mnist.npz")
if path.is_file():
    with np.load(path, allow_pickle=False) as mnist:
        images = mnist["X_train"].reshape(-1, 784) / 255.0
        labels = mnist["y_train"]
else:
    images, labels = load_digits(return_X_y=True)
    images = images / 16
side = int(np.sqrt(images.shape[1]))
zeros, ones = images[labels == 0], images[labels == 1]
n_images = max(1, round(2000 / images.shape[1]))
rng = np.random.default_rng(0)

# %%
# A short memory, because the stream changes quickly, and a rate that does not fall. A
# pixel is visited about `n_images` times in a call.

model = AWSGDMatrixFactorization(
    n_components=10,
    learning_rate="constant",
    sampler=RowColumnSampler(forgetting=min(0.1, 1.5 / n_images)),
    random_state=0,
)
maps = []
while len(maps) < 15:
    n_draws = len(maps) * n_images * images.shape[1]
    share_of_ones = np.clip((n_draws - 10_000) / 10_000, 0, 1)
    is_one = rng.random(n_images) < share_of_ones
    chunk = np.where(
        is_one[:, None],
        ones[rng.integers(len(ones), size=n_images)],
        zeros[rng.integers(len(zeros), size=n_images)],
    )
    model.partial_fit(chunk)
    maps.append((model.t_ - 1, share_of_ones, model.column_probabilities_))

# %%
# One heat map for each call, all with the same colours.

figure, axes = plt.subplots(3, 5, figsize=(9, 6.4), layout="constrained")
largest = max(p.max() * p.size for _, _, p in maps)
for axis, (n_draws, share, probabilities) in zip(axes.flat, maps, strict=True):
    picture = axis.imshow(
        (probabilities * probabilities.size).reshape(side, side),
        cmap="magma",
        vmin=0,
        vmax=largest,
    )
    axis.set_title(f"{n_draws:,.0f} draws\n{share:.0%} ones", fontsize=9)
    axis.set_axis_off()
figure.colorbar(
    picture, ax=axes, label="probability of the pixel, uniform = 1", shrink=0.7
)
figure.suptitle("What the sampler looks at while zeros turn into ones")
plt.show()

# %%
# The pixels of the zero stand out after a few thousand draws, a handful of visits of
# each pixel, and fade when ones come in: the sampler needs no second look at old data.
# With a longer memory (a smaller `forgetting`) the maps are cleaner and follow later.
