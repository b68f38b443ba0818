"""What stands beside the private linear models, in the virtual environment of each.

``PYTHON rivals.py LIBRARY`` reads requests, one line of JSON each, and answers each with the scores
that a model fitted to the training rows gives the test rows, in a file.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import warnings
from typing import Any

import numpy as np

EPOCHS, BATCH, RATE, CLIP = 10, 64, 0.1, 1.0  # those of Opacus' first example (MNIST)


def diffprivlib(data: Any, epsilon: float, delta: float, seed: int, C: float = 1.0) -> Any:
    """Fit its logistic regression; the bound on the rows is the public one."""
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(
        epsilon=epsilon, data_norm=float(data["radius"]), C=C, random_state=seed
    )
    model.fit(data["X"], data["y"])
    return data["X_test"] @ model.coef_[0] + model.intercept_[0]


def opacus(data: Any, epsilon: float, delta: float, seed: int) -> Any:
    """Fit a linear layer by DP-SGD with the numbers of its first example."""
    import opacus
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X = torch.tensor(data["X"], dtype=torch.float32)
    y = torch.tensor(data["y"] > 0, dtype=torch.float32)
    loader: Any = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), BATCH)
    model: Any = torch.nn.Linear(X.shape[1], 1)
    optimizer: Any = torch.optim.SGD(model.parameters(), RATE)
    model, optimizer, loader = opacus.PrivacyEngine().make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, target_epsilon=epsilon,
        target_delta=delta, epochs=EPOCHS, max_grad_norm=CLIP,
    )  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(EPOCHS):
        for rows, labels in loader:
            if len(rows):
                optimizer.zero_grad()
                loss(model(rows)[:, 0], labels).backward()
                optimizer.step()
    with torch.no_grad():
        scores = model(torch.tensor(data["X_test"], dtype=torch.float32))[:, 0]
        return scores.double().numpy()


def sklearn(data: Any, epsilon: float, delta: float, seed: int) -> Any:
    """Fit without privacy, with all defaults but the number of steps."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=2000).fit(data["X"], data["y"])
    return model.decision_function(data["X_test"])


def diffprivlib_linear(data: Any, epsilon: float, delta: float, seed: int) -> Any:
    """Fit its linear regression; the ranges of features and target are the public ones."""
    from diffprivlib.models import LinearRegression

    low, high = data["target"]
    model = LinearRegression(
        epsilon=epsilon, bounds_X=(data["low"], data["high"]), bounds_y=(low, high),
        random_state=seed,
    )  # fmt: skip
    return model.fit(data["X"], data["y"]).predict(data["X_test"])


def sklearn_ridge(data: Any, epsilon: float, delta: float, seed: int) -> Any:
    """Fit without privacy, features scaled by the public ranges, all else by default."""
    from sklearn.linear_model import Ridge

    low, high = data["low"], data["high"]
    X, X_test = ((2.0 * x - low - high) / (high - low) for x in (data["X"], data["X_test"]))
    return Ridge().fit(X, data["y"]).predict(X_test)


#: Library -> the fit of each task, and the packages whose versions are told.
LIBRARIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "diffprivlib": (
        {"classification": diffprivlib, "regression": diffprivlib_linear},
        ("diffprivlib", "scikit-learn"),
    ),
    "opacus": ({"classification": opacus}, ("opacus", "torch")),
    "sklearn": ({"classification": sklearn, "regression": sklearn_ridge}, ("scikit-learn",)),
}


def main(library: str) -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore")
    tasks, packages = LIBRARIES[library]
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        data = dict(np.load(request.pop("data")))
        out, fit = request.pop("out"), tasks[request.pop("task")]
        began = time.perf_counter()
        try:
            scores = fit(data, **request)
        except ValueError as error:  # a budget that the library cannot keep to
            print(json.dumps({"refused": str(error)}), flush=True)
            continue
        seconds = time.perf_counter() - began
        np.save(out, scores)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
