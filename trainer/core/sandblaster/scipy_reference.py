#!/usr/bin/env python3
"""Prints what lbfgs_test.cc compares with: SciPy's L-BFGS-B on the same problems.

    python3 -m venv VENV && VENV/bin/pip install scipy numpy && VENV/bin/python3 trainer/core/sandblaster/scipy_reference.py
"""

import numpy as np
import scipy
import scipy.optimize

MASK = (1 << 64) - 1


def number(index):
    """The same as in lbfgs_test.cc: splitmix64 of the index, in [-1, 1)."""
    z = (index * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) >> 11) / float(1 << 52) - 1


def numbers(first, count):
    return np.array([number(first + i) for i in range(count)])


def quadratic(size, condition):
    scales = condition ** (np.arange(size) / (size - 1))
    centre = numbers(0, size)
    return (lambda x: (0.5 * np.sum(scales * (x - centre) ** 2), scales * (x - centre))), np.zeros(size)


def logistic(samples, features, decay):
    inputs = numbers(1000, samples * features).reshape(samples, features)
    signs = np.where(inputs @ numbers(0, features) + numbers(500, samples) > 0, 1.0, -1.0)

    def evaluate(x):
        margins = signs * (inputs @ x)
        value = np.mean(np.logaddexp(0, -margins)) + 0.5 * decay * np.dot(x, x)
        weights = -signs / (1 + np.exp(margins)) / samples
        return value, inputs.T @ weights + decay * x

    return evaluate, np.zeros(features)


def rosenbrock(size):
    def evaluate(x):
        return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)

    return evaluate, np.array([-1.2 if i % 2 == 0 else 1.0 for i in range(size)])


def network(samples, features, hidden, decay):
    """tanh(inputs V) w against what another network of the kind says; x holds V by rows, then w."""
    inputs = numbers(1000, samples * features).reshape(samples, features)
    size = features * hidden

    def outputs(x):
        units = np.tanh(inputs @ x[:size].reshape(features, hidden))
        return units, units @ x[size:]

    targets = outputs(2 * numbers(0, size + hidden))[1]

    def evaluate(x):
        units, output = outputs(x)
        errors = (output - targets) / samples
        back = np.outer(errors, x[size:]) * (1 - units * units)
        gradient = np.concatenate([(inputs.T @ back).ravel(), units.T @ errors])
        return 0.5 * samples * np.dot(errors, errors) + 0.5 * decay * np.dot(x, x), gradient + decay * x

    return evaluate, 0.5 * numbers(300, size + hidden)


print("SciPy", scipy.__version__)
for name, (function, start), history in [
    ("Quadratic100", quadratic(100, 1000), 10),
    ("Quadratic1000", quadratic(1000, 100), 10),
    ("Logistic50", logistic(500, 50, 1e-3), 10),
    ("Logistic200", logistic(1000, 200, 1e-4), 5),
    ("Rosenbrock20", rosenbrock(20), 10),
    ("Network", network(200, 8, 6, 1e-3), 10),
]:
    result = scipy.optimize.minimize(
        function, start, jac=True, method="L-BFGS-B",
        options={"maxcor": history, "gtol": 1e-5, "ftol": 0, "maxiter": 10000, "maxfun": 100000})
    print(f'    {{"{name}", {result.fun:.15g}, {result.nit}, {result.nfev}}},  // {result.message}')
