"""Memory that a large step has taken is given back to the system."""

import onnxruntime as ort

from model.bundle import Bundle, default_bundle_dir
from service.engine.cpu import runner as cpu_runner
from service.engine.job import SearchParams
from tests.fakes.engine_runs import translate


def test_several_small_steps_give_back_what_a_large_one_has_taken(monkeypatch):
    bundle = Bundle.load(default_bundle_dir(), verify=False)
    runner = cpu_runner.CpuRunner(bundle)
    gives_back = []

    def run(session, binding, options=None, original=ort.InferenceSession.run_with_iobinding):
        gives_back.append(options is not None)
        original(session, binding, options)

    monkeypatch.setattr(cpu_runner, "_LARGE_LOGITS", 1 << 20)  # bytes
    monkeypatch.setattr(ort.InferenceSession, "run_with_iobinding", run)
    params = SearchParams(beam_size=4, max_target_tokens=3, min_target_tokens=3)
    translate(runner, [(40, 61, 3)] * 16, params)  # 64 rows of 8,000 logits: 2 MB
    large = len(gives_back)
    for _ in range(4):
        translate(runner, [(40, 61, 3)], params)

    assert gives_back[:large] == [False] * large
    assert gives_back[large:].index(True) == cpu_runner._SMALL_STEPS - 1
    assert gives_back.count(True) == 1
