# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Dividing a privacy budget over iterations
#
# **You learn** how to divide a privacy budget over the iterations so that the error is smallest,
# and how many iterations are worth running.
#
# A run of $T$ iterations under pure $\epsilon$-differential privacy releases $T$ noisy
# gradients. Iteration $t$ spends $\epsilon_t$ and $\sum_t \epsilon_t = \epsilon$. Spending it
# evenly is simple but wasteful: later iterations contract the noise of early ones, so early
# iterations need less budget.
#
# The error bound of Nesterov's method (Kuru, Birbil, Gürbüzbalaban, Yıldırım 2022, section 4,
# corrected) has the form
#
# $$E[F(w_T) - F^*] \le a_0\, E_0 + \sum_{t=1}^T a_t \left( d\, b_t^2 + \tfrac12 \sigma_s^2
# \right)$$
#
# with $b_t$ the Laplace scale of iteration $t$. The best allocation minimizes $\sum_t a_t b_t^2$.

# %%
import matplotlib.pyplot as plt
import numpy as np

from dpanalysis import methods, privacy, theory

mu, L, d, n, sensitivity, epsilon, E0 = 0.02, 5.10008, 20, 100_000, 40.0, 1.0, 10.0
T = 200

# %% [markdown]
# ## Full batch: a formula
#
# With full-batch gradients $b_t = S_1 / (n \epsilon_t)$, and the optimum is
# $\epsilon_t \propto a_t^{1/3}$.

# %%
a0, a = theory.nesterov_weights(T, 1 / L, mu, L)
optimal = theory.allocate_epsilon(a, epsilon)
uniform = np.full(T, epsilon / T)
bounds = {
    name: theory.error_bound(a0, a, E0, theory.laplace_scales(shares, sensitivity, n), dimension=d)
    for name, shares in [("uniform", uniform), ("optimal", optimal)]
}
print(bounds)
assert optimal.sum() <= epsilon
assert bounds["optimal"] < bounds["uniform"]

# %% [markdown]
# ## Mini-batches: no formula, but a convex problem
#
# With $m$ of $n$ samples drawn without replacement, privacy is amplified by sampling and $b_t$
# is a more complicated function of $\epsilon_t$. The problem is still convex with one
# constraint, so a search over one multiplier solves it exactly, for thousands of iterations in
# milliseconds.
#
# The paper's Remark 4.2 offers the full-batch allocation as a guide for small batches. Using its
# noise scales unchanged overspends: they must be computed from the epsilons by the batch formula.

# %%
m = 1000
minibatch = theory.allocate_epsilon(a, epsilon, n, m)
scales = theory.laplace_scales(optimal, sensitivity, n)
overspent = privacy.laplace_epsilon(sensitivity, scales, n, m).sum()
print(f"full-batch noise on batches of {m}: true epsilon {overspent:.2f} instead of {epsilon}")
spent = privacy.laplace_epsilon(
    sensitivity, theory.laplace_scales(minibatch, sensitivity, n, m), n, m
).sum()
print(f"allocated for batches of {m}:       true epsilon {spent:.6f}")
assert overspent > 1.5 and abs(spent - epsilon) < 1e-9

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
t = np.arange(1, T + 1)
axes[0].plot(t, uniform, "0.6", label="uniform")
axes[0].plot(t, optimal, label="optimal, full batch")
axes[0].plot(t, minibatch, "--", label=f"optimal, m = {m}")
axes[0].set(xlabel="iteration", ylabel=r"budget $\epsilon_t$", yscale="log")
axes[0].legend(frameon=False)

step_sizes, stages = theory.multistage_schedule(613, mu=1.0, L=20.0, first_stage=13)
_, weights = theory.multistage_weights(step_sizes, stages, 1.0, 20.0)
axes[1].plot(1 / theory.allocate_epsilon(weights, 1.0))
axes[1].set(
    xlabel="iteration",
    ylabel=r"noise scale $b_t\, n \epsilon / S_1$",
    title="multistage method, five stages",
)
plt.show()

# %% [markdown]
# In the multistage method (right) the step size falls from stage to stage, so the noise may
# rise again when a new stage begins: a sawtooth.
#
# ## How many iterations?
#
# Every iteration contracts the initial error, but also makes all the others noisier. The bound
# gives the best compromise before any data are accessed.

# %%
fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
recursion = theory.nesterov_recursion(600, 1 / L, mu, L)
for noise, style in [("uniform", "0.6"), ("optimal", "C0")]:
    curve = theory.horizon_bounds(recursion, E0, d, sensitivity, n, epsilon, noise=noise)
    best = int(curve.argmin())
    ax.semilogy(np.arange(1, 601), curve, style, label=f"{noise}: best T = {best + 1}")
    ax.plot(best + 1, curve[best], "o", color=style)
ax.set(xlabel="number of iterations T", ylabel="bound on the final error")
ax.legend(frameon=False)
plt.show()
horizon, bound = theory.best_horizon(600, 1 / L, None, mu, L, E0, d, sensitivity, n, epsilon)
print(f"T' = {horizon}, bound {bound:.4f}")

# %% [markdown]
# ## Is the gain real?
#
# On a quadratic the expected error is known exactly for any noise, so the comparison does not need
# the bound.

# %%
eigenvalues = np.geomspace(mu, L, d)
start = np.full(d, np.sqrt(2 * E0 / eigenvalues.sum()))
for name, steps, noise in [
    ("uniform, T = 600", 600, "uniform"),
    ("uniform, T'", horizon, "uniform"),
    ("optimal, T'", horizon, "optimal"),
]:
    shares = np.full(steps, epsilon / steps)
    if noise == "optimal":
        shares = theory.allocate_epsilon(theory.nesterov_weights(steps, 1 / L, mu, L)[1], epsilon)
    variance = 2 * theory.laplace_scales(shares, sensitivity, n) ** 2
    gap = theory.nesterov_gap(eigenvalues, 1 / L, mu, variance, start, steps)
    print(f"{name:18s} exact expected error {gap[-1]:.2e}")

# %% [markdown]
# ## Gaussian noise
#
# Under zero-concentrated privacy (zCDP) a release costs $\Delta^2 / (2 s_t^2)$, and the same
# reasoning gives $s_t^2 \propto a_t^{-1/2}$.

# %%
std = theory.allocate_gaussian(a, rho=0.5, sensitivity=sensitivity / n)
cost = ((sensitivity / n) ** 2 / (2 * std**2)).sum()
print(f"zCDP spent {cost:.6f}; first and last standard deviation {std[0]:.4f}, {std[-1]:.4f}")
assert abs(cost - 0.5) < 1e-9

# %% [markdown]
# ## Can any other noise do better?
#
# Noise may also be correlated over the iterations. With full batches on a quadratic this gains
# nothing: the certificate holds an allocation, and differences of gradients for which *no*
# Gaussian noise has a smaller error. The floor is a lower bound for every unbiased release.

# %%
spectrum = np.geomspace(0.01, 1.0, 20)
floor = theory.noise_floor(spectrum, sensitivity=1e-3, mu=1e-3)
fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
horizons = np.unique(np.geomspace(5, 700, 25).astype(int))
for name, color in [("gradient descent", "C0"), ("Nesterov", "C1")]:
    found = []
    for steps in horizons.tolist():
        if name == "Nesterov":
            method = methods.Nesterov(1.0, steps, mu=0.01)
        else:
            method = methods.GradientDescent(1.0, steps)
        best = theory.allocation_certificate(method, spectrum)
        assert abs(best.gap) < 1e-10  # allocation and dual agree: proved, for this method and T
        found.append((best.uniform / floor, best.value / floor, best.lower / floor))
    uniform_error, optimal_error, proved = np.transpose(found)
    ax.loglog(horizons, uniform_error, color, linestyle=":", label=f"{name}, uniform")
    ax.loglog(horizons, optimal_error, color, label=f"{name}, optimal")
    ax.loglog(horizons, proved, "k.", markersize=3)
    print(f"{name}, T = {horizons[-1]}: {optimal_error[-1]:.2f} times the floor")
ax.axhline(1.0, color="0.6", label="floor of unbiased releases")
ax.set(xlabel="number of iterations T", ylabel="error by noise / floor")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# The dots are the dual bounds. Errors below the floor come with bias: a short run has not moved
# away from its start.
#
# ## To try
#
# Set epsilon to 0.1 and 10: how does the best horizon change? Worsen the conditioning with `mu =
# 0.002`. Allocate the budget of a method of your own with `theory.allocate_epsilon`, from its
# weights.
