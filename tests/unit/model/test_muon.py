"""Muon against the singular value decomposition that it approximates, and against PyTorch's, which has bf16 only."""

import pytest
import torch

from model.optimizer import Muon, orthogonalized

SHAPES = [(24, 96), (96, 24), (32, 32)]


def seeded(shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def updated(optimizer_of, shape: tuple[int, int]) -> torch.Tensor:
    """A matrix after three updates with seeded gradients."""
    matrix = torch.nn.Parameter(seeded(shape))
    optimizer = optimizer_of([matrix])
    for seed in range(2, 5):
        matrix.grad = seeded(shape, seed)
        optimizer.step()
    return matrix.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_near_one_and_singular_vectors_stay(shape):
    matrix = seeded(shape) @ torch.diag(torch.logspace(0, 1, shape[1]))  # condition of ten and more

    found = orthogonalized(matrix)

    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ found @ right.T
    assert inside.diagonal().min() > 0.3
    assert inside.diagonal().max() < 1.3
    assert (inside - inside.diagonal().diag()).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_in_bf16_it_is_pytorchs(shape):
    ours = updated(lambda matrices: Muon(matrices, lr=0.01, weight_decay=0.1, precision=torch.bfloat16), shape)
    theirs = updated(
        lambda matrices: torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), shape
    )

    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_fp32_goes_the_same_way(shape):
    start = seeded(shape)
    change = {
        precision: updated(lambda matrices: Muon(matrices, lr=0.01, weight_decay=0.1, precision=precision), shape)  # noqa: B023
        - start
        for precision in (torch.float32, torch.bfloat16)
    }

    assert not torch.equal(change[torch.float32], change[torch.bfloat16])
    cosine = torch.cosine_similarity(change[torch.float32].flatten(), change[torch.bfloat16].flatten(), dim=0)
    assert cosine > 0.99


def test_what_is_no_matrix_is_refused():
    with pytest.raises(ValueError, match=r"Muon updates matrices, given is a parameter of shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))], lr=0.01, weight_decay=0.1, precision=torch.float32)


def test_a_matrix_without_gradient_stays():
    matrix = torch.nn.Parameter(seeded((4, 4)))
    Muon([matrix], lr=0.01, weight_decay=0.1, precision=torch.float32).step()

    assert torch.equal(matrix, seeded((4, 4)))
