"""Mixtures of experts: routing by hand, training, and the same numbers on one rank and on two."""

from __future__ import annotations

import copy

import pytest
import torch

from compat.with_torch.moe_ranks import EXPERTS, HIDDEN, MODEL, mixture
from train import training_ranks

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def test_each_token_gets_the_weighted_results_of_its_experts() -> None:
    from ort_moe.grids import DistributionGrid

    layer = mixture(DistributionGrid(), merged=False, factor=EXPERTS)
    tokens = torch.randn(5, MODEL)
    expected = []
    for token in tokens:
        weights, chosen = layer.gate.wg(token).softmax(0).topk(2)
        parts = [layer.moe_experts[int(i)](token) for i in chosen]
        expected.append(
            sum(w * part for w, part in zip(weights / weights.sum(), parts, strict=True))
        )
    torch.testing.assert_close(layer(tokens), torch.stack(expected))
    assert layer(tokens.reshape(5, 1, MODEL)).shape == (5, 1, MODEL)


def test_merged_experts_compute_what_single_ones_do() -> None:
    from ort_moe.grids import DistributionGrid

    single, merged = (mixture(DistributionGrid(), merged=flag) for flag in (False, True))
    with torch.no_grad():
        merged.gate.load_state_dict(single.gate.state_dict())
        for number, expert in enumerate(single.moe_experts):
            merged.moe_experts.weight1[number] = expert.linear1.weight.t()
            merged.moe_experts.weight2[number] = expert.linear2.weight.t()
    tokens = torch.randn(6, 3, MODEL)
    torch.testing.assert_close(single(tokens), merged(tokens))


@pytest.mark.parametrize(
    ("drop_type", "kept_tokens"), [("cut", [0, 1]), ("routing_weight", [3, 2])]
)
def test_a_full_expert_takes_no_more(drop_type: str, kept_tokens: list[int]) -> None:
    from ort_moe.grids import DistributionGrid
    from ort_moe.topKgate import TopKGate

    gate = TopKGate(1, 2, DistributionGrid(), k=1, capacity_factor=1.0, token_drop_type=drop_type)
    with torch.no_grad():
        gate.wg.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    routing = gate(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert routing.capacity == 2
    positions = routing.places_KS[0].tolist()
    assert [positions[token] for token in kept_tokens] == [0, 1]
    dropped = [token for token in range(4) if token not in kept_tokens]
    assert [positions[token] for token in dropped] == [-1, -1]
    assert routing.weights_KS[0, dropped].tolist() == [0, 0]
    assert gate.gate_log["gate_routed"] == 0.5


def test_padding_goes_to_no_expert() -> None:
    from ort_moe.grids import DistributionGrid

    layer = mixture(DistributionGrid(), merged=True, factor=EXPERTS)
    tokens = torch.randn(4, MODEL)
    result = layer(tokens, nonpadding=torch.tensor([1, 1, 0, 1]))
    assert result[2].abs().sum() == 0 and result[3].abs().sum() > 0


def test_the_load_is_balanced_where_the_loss_is_least() -> None:
    from ort_moe import loss_functions

    even = torch.eye(4).repeat(2, 1) * 20
    shares = torch.full((4,), 0.25)
    assert loss_functions.load_balance(even, shares).item() == pytest.approx(1)
    first = torch.zeros(8, 4)
    first[:, 0] = 20
    shares = torch.tensor([1.0, 0, 0, 0])
    assert loss_functions.load_balance(first, shares).item() == pytest.approx(4, rel=1e-4)


@pytest.mark.parametrize("merged", [True, False])
def test_a_transformer_layer_trains(merged: bool) -> None:
    from ort_moe.layers import TransformerMoEDecoderLayer, TransformerMoEEncoderLayer
    from ort_moe.utils import get_moe_loss

    torch.manual_seed(0)
    options = {"merged_experts": merged, "checkpoint_experts": True}
    parts = {"nhead": 2, "dim_feedforward": HIDDEN, "dropout": 0.0, "nexperts": EXPERTS}
    encoder = TransformerMoEEncoderLayer(MODEL, **parts, options=options)
    decoder = TransformerMoEDecoderLayer(MODEL, **parts, options=options)
    model = torch.nn.ModuleList([encoder, decoder, torch.nn.Linear(MODEL, 2)])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    words = torch.randn(6, 4, MODEL)
    target = (words.sum(2) > 0).long()
    losses = []
    for _ in range(30):
        result = model[2](decoder(words, encoder(words)))
        loss = torch.nn.functional.cross_entropy(result.flatten(0, 1), target.flatten())
        extra, log, count = get_moe_loss(model)
        assert extra is not None and log is not None and count == 2
        optimizer.zero_grad()
        (loss + extra).backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses
    copied = copy.deepcopy(model).eval()
    assert torch.equal(copied[0](words), model.eval()[0](words))


def test_what_it_lacks_is_named() -> None:
    from ort_moe import moe, utils
    from ort_moe.grids import DistributionGrid
    from ort_moe.topKgate import TopKGate

    with pytest.raises(NotImplementedError, match="expert_slicing_group_size"):
        DistributionGrid(expert_slicing_group_size=2)
    with pytest.raises(ValueError, match="a grid of 2 ranks does not fit 1"):
        DistributionGrid(expert_parallel_group_size=2)
    with pytest.raises(NotImplementedError, match="enable_dynamic_capacity"):
        TopKGate(4, 2, DistributionGrid(), options={"enable_dynamic_capacity": True})
    with pytest.raises(ValueError, match="no option `merged`"):
        TopKGate(4, 2, DistributionGrid(), options={"merged": True})
    with pytest.raises(ValueError, match="no loss `even`"):
        TopKGate(4, 2, DistributionGrid(), balance_ratio={"even": 1.0})
    for module, name in ((moe, "MixtureOfExpertsES"), (utils, "Synchronizer")):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)


@pytest.mark.timeout(300)
def test_experts_on_two_ranks_train_as_on_one() -> None:
    """One rank takes both parts of each batch: results are equal where tokens are dropped, too."""
    answers = training_ranks.run("compat.with_torch.moe_ranks:compare", 2)
    assert [answer["ids"] for answer in answers] == [[0, 1], [2, 3]]
    for answer in answers:
        assert answer["merged"] < 1e-6 and answer["single"] < 1e-6, answers
        # They did learn, and not every token had a place.
        assert answer["moved"] > 1e-2 and answer["routed"] < 1, answers
