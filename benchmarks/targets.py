"""The targets of all comparisons, and the reasons for targets that are not reached.

A target is looked up by ``"key/peer"``, the names of the work and the peer (``"key/"``: the work
alone, in its own unit). A "floor" was once reached and must not be lost; a "goal" is the aim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Target:
    """A bound on a measurement.

    It is for ours / peer ("times", at most), peer / ours ("faster", at least), or ours, which is
    then in ``unit`` like the bound.
    """

    sense: Literal["times", "faster", "at most"]
    floor: float | None
    goal: float | None
    unit: str = ""

    def meets(self, value: float, bound: float | None) -> bool:
        """Return whether ``value`` meets a bound; False if there is no bound."""
        if bound is None:
            return False
        return value >= bound if self.sense == "faster" else value <= bound

    def verdict(self, value: float) -> str:
        """Return which of the two bounds is met."""
        if self.meets(value, self.goal):
            return "goal reached"
        return "floor reached" if self.meets(value, self.floor) else "NOT reached"

    def show(self, bound: float | None) -> str:
        """Format a bound as in ``<= 1.2 x``, ``>= 2 x faster`` or ``<= 5 ms``."""
        if bound is None:
            return ""
        return {
            "times": f"<= {bound:g} x",
            "faster": f">= {bound:g} x faster",
            "at most": f"<= {bound:g} {self.unit}".rstrip(),
        }[self.sense]


ONE_READ = "one read of X"
SINGLE_PASSES = "single passes"
BUILT_IN = "the built-in loss"
ONE_THREAD = "the same on one thread"
SEEDED = "a seeded generator"
NON_PRIVATE = "its own non-private epoch"
WITHOUT = "the same without privacy"
NOT_PRIVATE_STEP = "PyTorch, not private"
HOST = "the host"
LBFGS = "scikit-learn, lbfgs"

TARGETS: dict[str, Target] = {
    "one full-batch step/": Target("at most", 131.0, 70.0, "calls"),
    "fit before its noise/": Target("at most", 6_191.0, 2_000.0, "calls"),
    f"dense gradient/{ONE_READ}": Target("times", 1.5, 1.2),
    f"gradient in cache/{ONE_READ}": Target("times", 2.5, 1.7),
    "CSR gradient/SciPy closed form": Target("faster", 1.2, 2.5),
    "CSR gradient, Adult-like/SciPy closed form": Target("faster", 1.2, 2.5),
    "CSR gradient, Adult-like/the same, dense": Target("faster", 2.0, None),
    "dense rows/NumPy closed form": Target("faster", 1.0, 1.5),
    "dense rows, float32/NumPy closed form": Target("faster", 1.0, 1.5),
    "CSR rows/SciPy closed form": Target("faster", 1.0, 1.5),
    "minibatch gradient/NumPy on X[idx]": Target("faster", 1.3, 2.0),
    "CSR minibatch gradient, Adult-like/SciPy on X[idx]": Target("faster", 1.3, 2.0),
    "draw/its gradient": Target("times", 0.25, 0.1),
    f"replicates/{SINGLE_PASSES}": Target("faster", 1.7, 3.0),
    f"own loss, compiled/{BUILT_IN}": Target("times", 1.5, 1.2),
    f"gradient after/{ONE_THREAD}": Target("times", 1.0, 0.75),
    f"full-batch step with exact noise/{SEEDED}": Target("times", 4.0, 3.0),
    "grid of Fig. 3/": Target("at most", 600.0, 240.0, "s"),
    f"epoch of a network, batch 256/{NON_PRIVATE}": Target("times", 1.4, 1.15),
    f"epoch of a network, batch 1024/{NON_PRIVATE}": Target("times", 1.15, 1.05),
    f"whole run, gradient descent/{WITHOUT}": Target("times", 1.5, 1.15),
    f"whole run, line search/{WITHOUT}": Target("times", 1.5, 1.15),
    "whole run, BallsInBins/WithoutReplacement": Target("times", 1.05, 1.0),
    "whole run, Shuffle/WithoutReplacement": Target("times", 1.05, 1.0),
    f"whole run, network/{WITHOUT}": Target("times", 1.5, 1.15),
    f"whole fit, LogisticRegression/{LBFGS}": Target("times", 1.5, 1.15),
    **{
        f"private step of a CNN, {rule}/{peer}": Target("times", *bounds)
        for rule in ("Flat", "PSAC", "Auto-S")
        for peer, bounds in {
            "Opacus, per sample": (1.3, 1.0),
            "Opacus, ghost": (1.3, 1.0),
            NOT_PRIVATE_STEP: (2.5, 1.8),
        }.items()
    },
    "memory of a CNN's clipped sum, batch 4096/batch 512": Target("times", 1.3, 1.1),
    f"private step of a module/{NOT_PRIVATE_STEP}": Target("times", 2.5, 1.8),
    **{
        f"{what} of {network}, Module/Opacus, ghost": Target("times", 1.3, 1.0)
        for what in ("private step", "memory of a step")
        for network in ("an MLP", "a CNN", "an LSTM")
    },
    "fit of few rows, LinearSVC/": Target("at most", None, 1000.0, "ms"),
    "best certified rate/": Target("at most", 30.0, 5.0, "ms"),
    "RDP of Poisson-sampled Gaussian noise/": Target("at most", 1.0, 0.3, "ms"),
    "RDP of 1000 noise scales/": Target("at most", 1000.0, 500.0, "ms"),
    "filter and ledger, 1e5 steps/": Target("at most", 2000.0, 500.0, "ms"),
    "budget over 10,000 iterations/": Target("at most", 200.0, 50.0, "ms"),
    "import dpanalysis/": Target("at most", 500.0, 300.0, "ms"),
    "first call over the second, kernels cached/": Target("at most", 300.0, 150.0, "ms"),
    "data and peak of a clipped gradient/the data": Target("times", 1.2, 1.05),
    "growth in n/": Target("at most", None, 1.05),
    "growth in d/": Target("at most", None, 1.05),
    "growth in R/": Target("at most", None, 1.05),
    "growth in T/": Target("at most", None, 1.05),
    # The audit: the time of a verdict and the rate of false alarms allowed by the confidence.
    "verdict on a million runs/": Target("at most", None, 1000.0, "ms"),
    "runs for power 0.9 at confidence 1 - 1e-09, of numbers/oracle": Target("times", None, 2.0),
    "runs for power 0.9 at confidence 1 - 1e-09, of selections and vectors/oracle": Target(
        "times", None, 4.0
    ),
    "runs for power 0.9 at confidence 0.9, of numbers/oracle": Target("times", None, 2.0),
    "runs for power 0.9 at confidence 0.9, of selections and vectors/oracle": Target(
        "times", None, 4.0
    ),
    "drawn mechanisms missed at 2.5 times the oracle's runs, confidence 1 - 1e-09/": Target(
        "at most", None, 10.0, "%"
    ),
    "false alarms at confidence 0.5/": Target("at most", None, 50.0, "%"),
    "false alarms at confidence 0.9/": Target("at most", None, 10.0, "%"),
    "false alarms at confidence 0.99/": Target("at most", None, 1.0, "%"),
}

# Shown if a row does not reach its floor; the longest key that begins "key/peer/case" applies.
_ONE_THREAD = "one thread: the same indirect loads on both sides, the gain is in the losses alone"
REASONS: dict[str, str] = {
    "private step of an MLP, Module/Opacus, ghost/batch 512, 1 thread": (
        "in a process of its own the C library gives memory back after each step: some hundred "
        "page faults"
    ),
    "memory of a step of an MLP, Module/Opacus, ghost": (
        "the gradients of the last layer and of the biases are written out for a chunk"
    ),
    "memory of a CNN's clipped sum, batch 4096/batch 512": (
        "arrays are those of a chunk; what the allocator keeps of them differs by tens of "
        "megabytes from run to run, whatever the batch"
    ),
    f"private step of a module/{NOT_PRIVATE_STEP}/LSTM": (
        "PyTorch's own step is one call of cuDNN, whose gradients of a sample change with the "
        "batch; here the steps of time are calls of their own"
    ),
    f"private step of a module/{NOT_PRIVATE_STEP}": (
        "some hundred calls more a chunk, each longer to start than to compute; iterate and noise "
        "are made on the host"
    ),
    f"gradient in cache/{ONE_READ}": (
        "computing takes the time, not reading: short loops, an exponential and a division a row. "
        "A second copy of the data, by columns, would be faster; it is not kept"
    ),
    f"dense gradient/{ONE_READ}": "reading and computing overlap only in part",
    f"dense gradient/{ONE_READ}/logistic, 60,000 x 784 float32": (
        "each number is converted to double precision, which takes longer than to read half the "
        "bytes. Predictions in single precision would be a little faster and lose half the digits"
    ),
    "CSR gradient/SciPy closed form": _ONE_THREAD,
    "CSR gradient, Adult-like/SciPy closed form": _ONE_THREAD,
    "dense rows/NumPy closed form": (
        "few rows, all in cache: a call takes some 10 us, and the rows are squared where they are "
        "added, to see that none has grown since it was bounded"
    ),
    "minibatch gradient/NumPy on X[idx]": (
        "batches of 200 rows, in cache: a call takes some 10 us"
    ),
    "CSR rows/SciPy closed form": _ONE_THREAD,
    f"replicates/{SINGLE_PASSES}": (
        "rows of few numbers: the losses, not the rows, take the time of both"
    ),
    "dense rows, float32/NumPy closed form": (
        "NumPy computes and adds in single precision; ours in double, as the bound on the rounding "
        "of a private sum needs"
    ),
    "draw/its gradient": (
        "the gradient runs on two threads, the draw on one: 8 ns a row of the batch"
    ),
    "first call over the second, kernels cached/": (
        "Numba's own registries and linker work before a kept kernel can run"
    ),
    f"epoch of a network, batch 256/{NON_PRIVATE}": (
        "101,770 normal numbers a step, and a norm for each sample and layer"
    ),
    f"epoch of a network, batch 1024/{NON_PRIVATE}": (
        "101,770 normal numbers a step, and a norm for each sample and layer"
    ),
    f"whole run, gradient descent/{WITHOUT}": (
        "the noise for the budget is searched for once, and each step has an event, a line in the "
        "ledger and noise of its own"
    ),
    f"whole run, line search/{WITHOUT}": (
        "noisy searches try more steps than exact ones, each a pass over the losses"
    ),
    f"whole run, network/{WITHOUT}": (
        "the noise for the budget comes from the loss distribution of the whole run, and each step "
        "draws 101,770 normal numbers and takes a norm for each sample and layer"
    ),
    f"whole fit, LogisticRegression/{LBFGS}": (
        "the private minimum is exact, by Newton's method, and each of its Hessians takes "
        "d products a row, where lbfgs stops at a gradient of 1e-4"
    ),
    "runs for power 0.9 at confidence 0.9": (
        "so few runs are counted that learning takes its share: 38% of them, and the event that "
        "they choose is not the best one"
    ),
    "growth in n//dense gradient": (
        "20,000 rows stay in the third level of cache, 2,000,000 are read from memory"
    ),
    "growth in T//filter and ledger": (
        "the clock of this run; in processor time a step takes as long at every T"
    ),
}


def reason(path: str) -> str:
    """Return the reason of the longest key that is a prefix of ``path``, or an empty string."""
    found = [key for key in REASONS if path.startswith(key)]
    return REASONS[max(found, key=len)] if found else ""
