import struct
import subprocess
import sys
from typing import get_args, get_type_hints

import numpy as np
import pytest

from penstock.config.schema import RunConfig
from penstock.metrics.histograms import Histograms, histogram
from penstock.metrics.model_graph import GraphNode
from penstock.metrics.report import Report
from penstock.metrics.tensorboard import AXES, TensorBoard, crc32c


def masked(content):
    crc = crc32c(content)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The records of an event file, with both checksums compared."""
    content, position = path.read_bytes(), 0
    while position < len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        assert struct.unpack_from("<I", content, position + 8) == (masked(content[position : position + 8]),)
        record = content[position + 12 : position + 12 + length]
        assert struct.unpack_from("<I", content, position + 12 + length) == (masked(record),)
        yield record
        position += 16 + length


def message(content):
    """A protobuf message as a list of (field, value)."""
    fields, position = [], 0

    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(content):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 2:
            length = varint()
            value = content[position : position + length]
            position += length
        else:
            form, size = {1: ("<d", 8), 5: ("<f", 4)}[kind]
            (value,) = struct.unpack_from(form, content, position)
            position += size
        fields.append((key >> 3, value))
    return fields


def events(path):
    return [dict(message(record)) for record in records(path)]


def scalars(event):
    """Tag -> value of an event's summary (field 5); a value has a tag (1) and a number (2)."""
    values = [dict(message(value)) for _, value in message(event[5])]
    return {value[1].decode(): value[2] for value in values}


@pytest.mark.parametrize(
    ("content", "crc"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_the_checksum_is_that_of_rfc_3720(content, crc):
    assert crc32c(content) == crc


def test_every_metric_is_a_scalar_over_environment_steps(tmp_path):
    board = TensorBoard(tmp_path, "steps")
    board.write(Report(1, 16_384, 1.0, {"loss/policy": 0.5, "rollout/return_mean": -1200.25}))
    board.write(Report(2, 10**12, 2.0, {"loss/policy": 0.25, "bad": float("nan"), "large": -1e39}))
    board.close()
    board.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    first, second, third = events(path)
    assert first[3] == b"brain.Event:2"
    assert second[2] == 16_384
    assert scalars(second) == {"loss/policy": 0.5, "rollout/return_mean": -1200.25}
    assert third[2] == 10**12
    assert scalars(third) == {"loss/policy": 0.25}
    assert first[1] > 1.5e9, "the wall time"


@pytest.mark.parametrize(("axis", "place"), [("steps", 500), ("updates", 7), ("seconds", 42)])
def test_curves_and_what_a_resume_hides_are_on_the_axis_that_was_asked_for(tmp_path, axis, place):
    TensorBoard(tmp_path, axis).close()
    board = TensorBoard(tmp_path, axis, resumed=Report(7, 500, 41.6, {}))
    board.write(Report(8, 600, 43.4, {"loss/policy": 0.5}))
    board.close()
    earlier, later = sorted(tmp_path.glob("events.out.tfevents.*"))
    assert len(events(earlier)) == 1
    _, start, curve = events(later)
    assert start[2] == place + 1
    assert message(start[7]) == [(1, 1)], "SessionLog.status is START"
    assert curve[2] == {"steps": 600, "updates": 8, "seconds": 43}[axis]


def test_a_resume_within_the_first_half_second_hides_what_comes_later_too(tmp_path):
    TensorBoard(tmp_path, "seconds", resumed=Report(2, 64, 0.4, {})).close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    _, start = events(path)
    assert start[2] == 1
    assert message(start[7]) == [(1, 1)]


def test_the_command_line_knows_every_axis():
    assert get_args(get_type_hints(RunConfig)["tensorboard_axis"]) == tuple(AXES)


def test_a_run_that_was_resumed_before_its_first_update_hides_nothing(tmp_path):
    TensorBoard(tmp_path, "steps", resumed=Report(0, 0, 0.5, {})).close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert len(events(path)) == 1


def test_a_later_file_sorts_after_the_earlier_ones_also_when_the_clock_goes_back(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    TensorBoard(tmp_path, "steps").close()
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    TensorBoard(tmp_path, "steps").close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.split(".")[3] for name in names] == ["2000000000", "2000000001"]


def shown(event):
    """Tag -> value of an event's summary, as a dict of its fields."""
    values = [dict(message(value)) for _, value in message(event[5])]
    return {value[1].decode(): value for value in values}


def plugin(value):
    """The part of TensorBoard that shows a value, and what it is told: fields 1 and 2 of plugin_data in metadata."""
    found = dict(message(dict(message(value[9]))[1]))
    return found[1].decode(), found[2]


SETTINGS = """# The run
env = "CartPole-v1"
lr = 0.001
num_envs = 8
trace = false
kl = inf
ignore_obs = ["clock"]

# Tables
[env_args]
size = 3
"""


def test_the_settings_are_a_text_and_hyper_parameters_where_they_begin_to_hold(tmp_path):
    board = TensorBoard(tmp_path, "steps")
    board.write_settings(SETTINGS, Report(7, 500, 41.6, {}))
    board.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    _, event = events(path)
    assert event[2] == 500
    values = shown(event)
    assert set(values) == {"settings", "_hparams_/session_start_info"}
    text = values["settings"]
    assert plugin(text) == ("text", b"")
    tensor = dict(message(text[8]))
    assert (tensor[1], tensor[2]) == (7, b"\x12\x02\x08\x01"), "DT_STRING, and one dimension of size 1"
    assert tensor[8].decode().splitlines() == [f"    {line}" for line in SETTINGS.splitlines()]
    name, content = plugin(values["_hparams_/session_start_info"])
    assert name == "hparams"
    ((field, started),) = message(content)
    assert field == 3, "HParamsPluginData.session_start_info"
    pairs = [dict(message(value)) for field, value in message(started) if field == 1]
    # Fields of google.protobuf.Value: 2 for a number, 3 for a text, 4 for true or false.
    assert {pair[1].decode(): message(pair[2]) for pair in pairs} == {
        "env": [(3, b"CartPole-v1")],
        "lr": [(2, 0.001)],
        "num_envs": [(2, 8.0)],
        "trace": [(4, 0)],
        "kl": [(3, b"inf")],
        "ignore_obs": [(3, b"['clock']")],
        "env_args": [(3, b"{'size': 3}")],
    }
    ((_, begun),) = [(field, value) for field, value in message(started) if field == 5]
    assert begun > 1.5e9, "the wall time"


def test_a_histogram_has_its_numbers_limits_and_counts(tmp_path):
    spread = histogram(np.array([-1.0, 0.0, 0.5, 2.0], np.float32))
    board = TensorBoard(tmp_path, "updates")
    board.write_histograms(Histograms(Report(50, 800, 9.0, {}), {"actor/0.weight": spread, "actor/0.bias": spread}))
    board.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    _, event = events(path)
    assert event[2] == 50
    values = shown(event)
    assert set(values) == {"actor/0.weight", "actor/0.bias"}
    # HistogramProto: min, max, num, sum, sum_squares, bucket_limit, bucket.
    found = dict(message(values["actor/0.weight"][5]))
    assert [found[field] for field in range(1, 6)] == [-1.0, 2.0, 4.0, 1.5, 5.25]
    limits, counts = (np.frombuffer(found[field], "<f8") for field in (6, 7))
    assert (len(limits), limits[-1]) == (30, 2.0)
    assert counts.sum() == 4.0


def node_of(content):
    """A NodeDef: name, op, inputs, and its attributes by name."""
    fields = message(content)
    (name, kind), inputs = (dict(fields)[field].decode() for field in (1, 2)), [v.decode() for f, v in fields if f == 3]
    attributes = [dict(message(value)) for field, value in fields if field == 5]
    return name, kind, inputs, {one[1].decode(): message(one[2]) for one in attributes}


def test_a_graph_has_its_nodes_with_inputs_facts_and_shapes(tmp_path):
    first = GraphNode("observation/obs", "Observation", (), (3, 300), (("dtype", "float32"),))
    second = GraphNode("value", "Value", ("observation/obs", "observation/obs"), ())
    board = TensorBoard(tmp_path, "steps")
    assert board.is_first
    board.write_graph((first, second))
    board.close()
    assert not TensorBoard(tmp_path, "steps").is_first
    path, _ = sorted(tmp_path.glob("events.out.tfevents.*"))
    _, event = events(path)
    assert event[2] == 0
    # Event.graph_def is field 4. Of GraphDef, field 1 is a node, and 4 the versions.
    graph = message(event[4])
    assert [field for field, _ in graph] == [1, 1, 4]
    assert message(graph[2][1]) == [(1, 22)]
    (name, kind, inputs, attributes), (_, _, taken, others) = (node_of(content) for _, content in graph[:2])
    assert (name, kind, inputs) == ("observation/obs", "Observation", [])
    assert taken == ["observation/obs"] * 2
    assert attributes["dtype"] == [(2, b"float32")], "AttrValue.s"

    def sides(attribute):
        """AttrValue.list, ListValue.shape, TensorShapeProto.dim, Dim.size, of which a negative one has 64 bits."""
        ((one, many),) = attribute
        ((seven, shape),) = message(many)
        assert (one, seven) == (1, 7)
        dims = [message(dim) for field, dim in message(shape) if field == 2]
        return [size - (size >> 63 << 64) for ((_, size),) in dims]

    assert sides(attributes["_output_shapes"]) == [-1, 3, 300]
    assert sides(others["_output_shapes"]) == [-1]


def test_an_animation_is_an_image_with_its_size_and_its_file(tmp_path):
    gif = b"GIF89a" + struct.pack("<HH", 480, 320) + b"and more"
    board = TensorBoard(tmp_path, "updates")
    board.write_animation("episodes", gif, Report(50, 800, 9.0, {}))
    board.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    _, event = events(path)
    assert event[2] == 50
    # Summary.Image: height, width, colorspace, encoded_image_string.
    assert message(shown(event)["episodes"][4]) == [(1, 320), (2, 480), (3, 3), (4, gif)]


def test_writing_imports_no_torch():
    program = "import sys, penstock.metrics.tensorboard; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
