"""Log-probabilities are of the distribution that was drawn from, and draws follow it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from t1.inference.sampling import Draws, check_params, derive_seed, draw, truncate, uniforms
from t1.types import SamplingParams

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, -6.0]])


def draw_many(params: SamplingParams, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` draws from LOGITS, and their log-probabilities."""
    draws = Draws([params] * count, uniforms([3] * count, range(count)))
    tokens, logprobs = draw(LOGITS.expand(count, -1), draws)
    return tokens.numpy(), logprobs.numpy()


@pytest.mark.parametrize(
    ("params", "weights"),
    [
        (SamplingParams(), LOGITS[0]),
        (SamplingParams(temperature=0.5), LOGITS[0] * 2),
        (SamplingParams(top_k=2), torch.tensor([2.0, 1.0, -torch.inf, -torch.inf, -torch.inf])),
        (SamplingParams(top_p=0.7), torch.tensor([2.0, 1.0, -torch.inf, -torch.inf, -torch.inf])),
        (SamplingParams(temperature=2.0, top_k=3, top_p=0.99), torch.tensor([1.0, 0.5, 0.0, -torch.inf, -torch.inf])),
    ],
)
def test_draws_and_logprobs_follow_the_distribution_that_was_asked_for(
    params: SamplingParams, weights: torch.Tensor
) -> None:
    """Case L2: the reported logprobs are not the raw ones where temperature or truncation is on."""
    expected = weights.log_softmax(-1).numpy()
    tokens, logprobs = draw_many(params, 20_000)
    np.testing.assert_allclose(logprobs, expected[tokens], atol=1e-6)
    shares = np.bincount(tokens, minlength=5) / len(tokens)
    np.testing.assert_allclose(shares, np.exp(expected), atol=0.015)


def test_temperature_zero_is_greedy_with_the_logprob_of_temperature_one() -> None:
    tokens, logprobs = draw_many(SamplingParams(temperature=0.0, top_p=0.5), 3)
    assert tokens.tolist() == [0, 0, 0]
    np.testing.assert_allclose(logprobs, LOGITS[0].log_softmax(-1)[0], atol=1e-6)


def test_each_row_gets_its_own_parameters() -> None:
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=1),
        SamplingParams(temperature=0.01),
        SamplingParams(),
    ]
    tokens, logprobs = draw(LOGITS.expand(4, -1), Draws(params, np.array([0.999, 0.999, 0.999, 0.999])))
    assert tokens[:3].tolist() == [0, 0, 0]
    assert int(tokens[3]) > 1
    np.testing.assert_allclose(logprobs[1:3], [0.0, 0.0], atol=1e-6)


def test_the_most_likely_token_survives_any_truncation() -> None:
    kept = truncate(LOGITS, [SamplingParams(top_p=1e-9)])
    assert kept.isfinite().tolist() == [[True, False, False, False, False]]


def test_no_uniform_number_draws_a_token_of_probability_zero() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(2, -1)
    tokens, _ = draw(logits, Draws([SamplingParams()] * 2, np.array([0.0, 1 - 2.0**-32])))
    assert tokens.tolist() == [1, 1]


def test_uniforms_are_a_function_of_seed_and_position_and_spread_evenly() -> None:
    numbers = uniforms([5] * 10_000, range(10_000))
    assert np.array_equal(numbers, uniforms([5] * 10_000, range(10_000)))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.02
    for other in (uniforms([6] * 10_000, range(10_000)), uniforms(range(10_000), [0] * 10_000), numbers[1:]):
        size = min(len(other), len(numbers))
        assert abs(np.corrcoef(numbers[:size], other[:size])[0, 1]) < 0.05


def test_large_and_negative_seeds_are_seeds() -> None:
    assert len(set(uniforms([-1, 2**64 - 2, 2**31, 0], [0, 0, 0, 0]))) == 4


def test_derived_seeds_do_not_repeat() -> None:
    seeds = Counter(derive_seed(seed, counter) for seed in range(20) for counter in range(200))
    assert max(seeds.values()) == 1


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=-1.0), SamplingParams(temperature=float("nan")), SamplingParams(top_p=0.0),
        SamplingParams(temperature=float("inf")), SamplingParams(top_p=1.5), SamplingParams(top_k=-1),
    ],
)  # fmt: skip
def test_numbers_that_describe_no_distribution_are_refused(params: SamplingParams) -> None:
    with pytest.raises(ValueError, match="expected"):
        check_params(params)
