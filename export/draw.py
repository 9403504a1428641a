"""Which graphs a model has on a CPU: the one place that chooses the classes of a configuration."""

from export.builder import GraphBuilder, WeightFile
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME, DecoderStepGraph, EncoderGraph
from export.linear import Products, State
from export.recurrent_graphs import RecurrentEncoderGraph, RecurrentStepGraph, SsruStepGraph
from model.config import Architecture, ModelConfig


def draw_graphs(config: ModelConfig, state: State, products: Products) -> dict[str, GraphBuilder]:
    """Return the graphs that translate, by file name."""
    weights = WeightFile()
    if config.is_recurrent:
        return {
            ENCODER_NAME: RecurrentEncoderGraph(config, state, products, weights).graph,
            DECODER_STEP_NAME: RecurrentStepGraph(config, state, products, weights).graph,
        }
    step = SsruStepGraph if config.architecture is Architecture.SSRU else DecoderStepGraph
    return {
        ENCODER_NAME: EncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: step(config, state, products, weights).graph,
    }
