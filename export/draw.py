"""Which graphs a model has on a CPU: the one place that chooses the classes of a configuration."""

from dataclasses import replace

from export.builder import GraphBuilder, WeightFile
from export.graphs import (
    DECODER_STEP_NAME,
    ENCODER_NAME,
    PROJECTION_NAME,
    SHORTLIST_STEP_NAME,
    DecoderStepGraph,
    EncoderGraph,
    ShortlistStepGraph,
    projection_graph,
)
from export.linear import Products, State
from export.recurrent_graphs import (
    RecurrentEncoderGraph,
    RecurrentStepGraph,
    SsruShortlistStepGraph,
    SsruStepGraph,
)
from model.config import Architecture, ModelConfig


def draw_graphs(config: ModelConfig, state: State, products: Products) -> dict[str, GraphBuilder]:
    """Return the graphs that translate, by file name."""
    weights = WeightFile()
    if config.is_recurrent:
        return {
            ENCODER_NAME: RecurrentEncoderGraph(config, state, products, weights).graph,
            DECODER_STEP_NAME: RecurrentStepGraph(config, state, products, weights).graph,
        }
    listed = replace(config, suppressed_keep_mass=False)  # a shortlist has no suppressed tokens, so no mass of theirs
    is_ssru = config.architecture is Architecture.SSRU
    step, listed_step = (SsruStepGraph, SsruShortlistStepGraph) if is_ssru else (DecoderStepGraph, ShortlistStepGraph)
    return {
        ENCODER_NAME: EncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: step(config, state, products, weights).graph,
        SHORTLIST_STEP_NAME: listed_step(listed, state, products, weights).graph,
        PROJECTION_NAME: projection_graph(config, state, products, weights),
    }
