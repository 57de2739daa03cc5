"""A picture for every kind of result."""

import json

import pytest

from benchmarks import exploration, link, plots, serve_batching

HEAD = {
    "commit": "0123456789ab",
    "machine": {"processor": "a processor", "cores": 2},
    "command": "python -m benchmarks.x",
}
ROWS = [
    {"case": "a", "what": "ours", "kind": "penstock", "us": 2.0, "p99_us": 5.0, "may_be_us": 3.0, "p99_may_be_us": 6.0},
    {"case": "a", "what": "theirs", "kind": "peer", "us": 900.0, "p99_us": 12_000.0},
    {"case": "a", "what": "floor", "kind": "limit", "us": 1.0},
]
SIDES = {"ratio": 20.0, "penstock_steps_per_s": [40, 44], "stable_baselines3_steps_per_s": [2, 2.2]}
PLACES = [
    {"hidden": units, "lanes": lanes, "beside_in_place": {"in place": 1.0, "policy node": 0.5}}
    for units in (64, 256)
    for lanes in (8, 64)
]
AGES = [
    {"lag": lag, "corrects": corrects, "curves": [[20.0, 500.0], [10.0, 9.0]]}
    for lag in (0, 10)
    for corrects in (True, False)
]
LINKS = [
    {
        "compress": compress,
        "link": link,
        "runs": [{"curve": {"steps": [9, 18], "seconds": [1, 2], "values": [20, 500]}}],
    }
    for compress, link in link.CASES
]
EXPLORED = {
    "setting": {"timesteps": 64, "tasks": {case: {"states": 9} for case in ("deep-sea", "chain")}},
    "rows": [
        {"case": case, "what": what, "curve": [2.5, 9.0], "found": [0.5, 0.0, 1.0], "learned": [1.0, None, None]}
        for case in ("deep-sea", "chain")
        for what in exploration.ROWS
    ],
}
BATCHES = [
    {"policy": policy, "way": way, "clients": clients, "ticks_a_second": 9.0, "p50_ms": 0.1, "p99_ms": 20.0}
    | {"server_us_a_tick": 30.0}
    for policy in ("small", "large")
    for way in plots.WAYS
    for clients in (1, 64)
]
GAINS = {policy: {"1 clients": 1.0, "64 clients": 1.5} for policy in ("small", "large")}


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("slots", {"rows": ROWS}),
        ("env_step", {"rows": [{**row, "case": f"case {n}", "us": row["us"] - 1.5} for n in range(5) for row in ROWS]}),
        ("end_to_end_fused", SIDES),
        ("vtrace", {"rows": AGES}),
        ("link", {"rows": LINKS}),
        ("exploration", EXPLORED),
        ("central_inference", {"rows": ROWS, "throughput": PLACES}),
        ("serve_batching", {"rows": BATCHES, "ratios": GAINS}),
    ],
)
def test_a_result_is_drawn(name, result, tmp_path):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**HEAD, **result}))
    image = plots.draw(path, tmp_path / "images")
    assert image.name == f"benchmark-{name.replace('_', '-')}.png"
    assert image.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "result"), [("unknown", {"ratios": [1.0]}), ("slots", {"rows": []}), ("vtrace", {"rows": []})]
)
def test_what_has_no_drawing_or_no_rows_is_left_out(name, result, tmp_path):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**HEAD, **result}))
    assert plots.draw(path, tmp_path / "images") is None
    assert not (tmp_path / "images").exists()


def test_times_far_apart_are_drawn_on_a_logarithmic_axis():
    axes = plots.mechanism({**HEAD, "rows": ROWS}, "title").axes[0]
    assert axes.get_xscale() == "log"
    near = [{**row, "us": 2.0, "p99_us": 3.0} for row in ROWS]
    assert plots.mechanism({**HEAD, "rows": near}, "title").axes[0].get_xscale() == "linear"


def test_numbers_have_three_digits_and_no_exponent():
    assert [plots.number(value) for value in (0.04567, 3.0, 45.678, 12_345.6)] == ["0.0457", "3.00", "45.7", "12,346"]


def test_every_way_of_answering_has_its_line():
    figure = plots.batches({**HEAD, "rows": BATCHES, "ratios": GAINS}, "title")
    ticks, latency, *_ = figure.axes[0], figure.axes[2]
    assert [line.get_label() for line in ticks.lines] == list(plots.WAYS) == list(serve_batching.WAYS)
    assert len(latency.lines) == 2 * len(plots.WAYS)
    assert ticks.get_title() == "small, 64 clients: 1.5 times"
