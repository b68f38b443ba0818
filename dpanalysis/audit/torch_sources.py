"""Recording substitutes for PyTorch's random functions, used by :mod:`.sources`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .coins import extreme_integers, extreme_uniform
from .tape import COINS, Draw, active_tape, mark_set

# Function, or method of tensors -> its law and the names of its parameters.
_TORCH: dict[str, tuple[str, tuple[str, ...]]] = {
    "randn": ("normal", ()),
    "randn_like": ("normal", ()),
    "normal": ("normal", ("mean", "std")),
    "rand": ("random", ()),
    "rand_like": ("random", ()),
    "randint": ("randint", ()),
    "randperm": ("permutation", ()),
    "bernoulli": ("random", ()),
    "multinomial": ("choice", ()),
}
_TENSOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "normal_": ("normal", ("mean", "std")),
    "uniform_": ("uniform", ("from", "to")),
    "exponential_": ("exponential", ("lambd",)),
    "cauchy_": ("cauchy", ("median", "sigma")),
    "bernoulli_": ("random", ()),
    "random_": ("randint", ()),
}


def _torch_call(name: str, law: str, names: tuple[str, ...], real: Any) -> Callable[..., Any]:
    import torch

    def function(*args: Any, **options: Any) -> Any:
        tape = active_tape()
        if tape is None:
            return real(*args, **options)
        key = tape.key(name)
        generator = options.get("generator")
        _note_default(torch, tape)
        keyed = generator is None and not tape.torch_is_seeded
        _Default.was_used |= keyed
        state: Any = None
        if generator is not None:
            if tape.note_seed(generator.initial_seed(), lambda: None):
                state = lambda: generator.get_state().numpy().tobytes()  # noqa: E731
        elif tape.torch_is_drawn:
            state = lambda: torch.random.get_rng_state().numpy().tobytes()  # noqa: E731
        extreme = tape.extreme_stream(key, keyed, state)
        with tape.paused(), torch.random.fork_rng(devices=[], enabled=keyed):
            if keyed:
                seed = int(tape.stream(key).integers(2**62))
                torch.random.default_generator.manual_seed(seed)
            value = real(*args, **options)
        if law in COINS:
            outcome = None if keyed else repr(value)
            coin = Draw(key, law, False, shape=tuple(value.shape), outcome=outcome)
            shift = name.endswith("_")
            return tape.coin(
                coin, extreme, value, lambda rng: _extreme(rng, name, value, args[shift:], options)
            )
        place, scale = _torch_parameters(name, law, names, args, options)
        array = value.detach().cpu().numpy().astype(np.float64)
        result = tape.record(Draw(key, law, True, place, scale, array), extreme)
        if extreme is not None:
            with torch.no_grad():
                value.copy_(torch.as_tensor(result))
        return value

    return function


class _Default:
    """Usage of PyTorch's default generator, and its last recorded seed."""

    was_used, seed = False, 0


def torch_default() -> dict[str, tuple[Any, Any]]:
    """Return PyTorch's default generator and a function that returns its seed, if imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    _Default.was_used = False

    def seed() -> int | None:  # one from the operating system has 53 bits
        number = int(torch.initial_seed())
        return number if number < 1 << 32 else None

    return {"PyTorch's default generator": (_Default, seed)}


def _note_default(torch: Any, tape: Any) -> None:
    """Record a seed of the default generator that was set by the generator's own method."""
    seed = torch.default_generator.initial_seed()
    if seed != _Default.seed and not tape.torch_is_seeded:
        tape.torch_is_drawn, tape.torch_is_seeded = tape.note_seed(seed, lambda: None), True


def _extreme(rng: np.random.Generator, name: str, value: Any, args: Any, options: Any) -> Any:
    """Return an extreme outcome of a PyTorch coin, written into the tensor drawn."""
    drawn, kept = value.detach().cpu().numpy(), rng.random() < 0.25
    if name in ("rand", "rand_like"):
        found = extreme_uniform(rng, drawn.astype(np.float32))
    elif name.startswith("bernoulli"):
        found = extreme_integers(rng, drawn, 0, 1)
    elif name == "randint":
        ends = [each for each in args if isinstance(each, int)][:2]
        low, top = ends if len(ends) == 2 else (0, *ends)
        found = extreme_integers(rng, drawn, options.get("low", low), options.get("high", top) - 1)
    elif name == "multinomial":
        possible = (args[0] if args else options["input"]).detach().cpu().numpy() > 0
        if options.get("replacement", len(args) > 2 and args[2]):
            chance = rng.random((*drawn.shape, possible.shape[-1])) * possible[..., None, :]
            found = np.argmax(chance, axis=-1)
        else:
            chance = np.where(possible, rng.random(possible.shape), -1.0)
            found = np.argsort(-chance, axis=-1)[..., : drawn.shape[-1]]
    else:
        return None
    if not kept:
        value.copy_(sys.modules["torch"].as_tensor(found))
    return value


def _torch_parameters(
    name: str, law: str, names: tuple[str, ...], args: Any, options: Any
) -> tuple[Any, Any]:
    def number(value: Any) -> Any:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else value

    if name == "rsample":  # of a distribution
        return number(args[0].loc), number(args[0].scale)
    if not names:
        return 0.0, 1.0
    shift = name.endswith("_")
    given = {**dict(zip(names, args[shift:])), **options}
    first, second = names[0], names[-1]
    if law == "exponential":
        return 0.0, 1.0 / given.get(first, 1.0)
    place, scale = number(given.get(first, 0.0)), number(given.get(second, 1.0))
    return place, scale - place if law == "uniform" else scale


def torch_names() -> list[tuple[Any, str, Any]]:
    """Return (owner, name, substitute) for the random functions of PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "randn"):
        return []
    named = [
        (owner, name, _torch_call(name, law, names, getattr(owner, name)))
        for owner, methods in ((torch, _TORCH), (torch.Tensor, _TENSOR))
        for name, (law, names) in methods.items()
    ]
    for kind, law in (
        (torch.distributions.Laplace, "laplace"),
        (torch.distributions.Normal, "normal"),
    ):
        named.append((kind, "rsample", _torch_call("rsample", law, (), kind.rsample)))
    real_seed, real_fresh = torch.manual_seed, torch.seed
    _Default.seed = torch.default_generator.initial_seed()

    def manual_seed(seed: Any) -> Any:
        tape = active_tape()
        if tape is not None:
            tape.torch_is_drawn = tape.note_seed(seed, lambda: None)
            tape.torch_is_seeded = True
        generator = real_seed(seed)
        _Default.seed = generator.initial_seed()
        return generator

    def fresh_seed() -> int:
        _Default.seed = real_fresh()
        return _Default.seed

    real_set = torch.set_rng_state

    def set_rng_state(state: Any) -> None:
        mark_set()
        real_set(state)

    return [
        *named,
        (torch, "manual_seed", manual_seed),
        (torch, "seed", fresh_seed),
        (torch, "set_rng_state", set_rng_state),
    ]
