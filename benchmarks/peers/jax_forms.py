"""JAX, compiled: the closed form, and a gradient for every sample by ``vmap``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import data

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)


def _loss(w: Any, x: Any, y: Any) -> Any:
    return jax.nn.softplus(-y * (x @ w))


@jax.jit
def _closed(X: Any, y: Any, w: Any, norms: Any) -> Any:
    c = -y * jax.nn.sigmoid(-y * (X @ w))
    return (c * jnp.minimum(1.0, data.CLIP / (jnp.abs(c) * norms))) @ X


@jax.jit
def _mapped(X: Any, y: Any, w: Any) -> Any:
    gradients = jax.vmap(jax.grad(_loss), (None, 0, 0))(w, X, y)
    norms = jnp.linalg.norm(gradients, axis=1)
    return jnp.minimum(1.0, data.CLIP / norms) @ gradients


def dense(n: int, d: int, dtype: str, loss: str) -> dict[str, Callable[[], Any]]:
    if loss != "logistic":
        return {}
    X, y, w, norms = (jnp.asarray(part, dtype) for part in data.dense(n, d, dtype))
    return {
        "JAX closed form": lambda: _closed(X, y, w, norms).block_until_ready(),
        "JAX vmap": lambda: _mapped(X, y, w).block_until_ready(),
    }


def descent(
    n: int, d: int, iterations: int, step: float, noise: float
) -> dict[str, Callable[[], Any]]:
    """Return clipped gradient descent with Gaussian noise, all steps compiled as one."""
    X, y, _, norms = map(jnp.asarray, data.planted(n, d))

    @jax.jit
    def run(key: Any) -> Any:
        def one(w: Any, key: Any) -> tuple[Any, None]:
            gradient = _closed(X, y, w, norms) / n + noise * jax.random.normal(key, (d,), w.dtype)
            return w - step * gradient, None

        return jax.lax.scan(one, jnp.zeros(d), jax.random.split(key, iterations))[0]

    keys = map(jax.random.key, itertools.count())
    return {"JAX closed form, clipped and noisy": lambda: run(next(keys)).block_until_ready()}


def minibatch(n: int, d: int, rate: float, poisson: bool) -> dict[str, Callable[[], Any]]:
    if poisson:  # every size of a batch would be compiled anew
        return {}
    X, y, w, norms = map(jnp.asarray, data.dense(n, d))
    rows = data.batches(n, rate, poisson)
    first, second = itertools.cycle(rows), itertools.cycle(rows)

    @jax.jit
    def closed(chosen: Any) -> Any:
        return _closed(X[chosen], y[chosen], w, norms[chosen])

    @jax.jit
    def mapped(chosen: Any) -> Any:
        return _mapped(X[chosen], y[chosen], w)

    return {
        "JAX closed form": lambda: closed(next(first)).block_until_ready(),
        "JAX vmap": lambda: mapped(next(second)).block_until_ready(),
    }


def network(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step: a gradient for every sample, clipped, with noise."""
    X, y = data.images(batch)
    images, labels = jnp.asarray(X), jnp.asarray(y)
    parameters = [(jnp.asarray(W), jnp.asarray(b)) for W, b in data.network()]

    def loss(parameters: Any, x: Any, label: Any) -> Any:
        (W1, b1), (W2, b2) = parameters
        logits = W2 @ jax.nn.relu(W1 @ x + b1) + b2
        return jax.nn.logsumexp(logits) - logits[label]

    @jax.jit
    def step(parameters: Any, key: Any) -> Any:
        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(parameters, images, labels)
        leaves, tree = jax.tree.flatten(gradients)
        squares = sum(jnp.sum(leaf.reshape(batch, -1) ** 2, axis=1) for leaf in leaves)
        factors = jnp.minimum(1.0, 1.0 / jnp.sqrt(squares))
        keys = jax.random.split(key, len(leaves))
        noisy = [
            jnp.tensordot(factors, leaf, 1)
            + jax.random.normal(one, leaf.shape[1:], dtype=leaf.dtype)
            for one, leaf in zip(keys, leaves)
        ]
        update = jax.tree.unflatten(tree, noisy)
        return jax.tree.map(lambda p, g: p - 0.1 / batch * g, parameters, update)

    keys = map(jax.random.key, itertools.count())

    def one() -> np.ndarray:
        return step(parameters, next(keys))[1][1].block_until_ready()

    return {"JAX vmap": one}
