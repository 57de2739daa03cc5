"""What is read from the machines that Ray lists."""

import pytest
import ray

from penstock.cluster import connection, listing


@pytest.mark.parametrize(("cores", "counted"), [([2.0], None), ([2.0, 4.0], 6), ([2.0, 0.0, 16.0], 18)])
def test_the_cores_of_a_cluster_are_counted_if_it_has_several_machines(
    monkeypatch: pytest.MonkeyPatch, cores: list[float], counted: int | None
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": count}} for count in cores]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"CPU": 99.0}}])
    with connection.counted("auto", ()) as found:
        assert found == counted


def test_machines_that_play_are_those_with_a_core_the_launchers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"NodeID": name, "Alive": name != "gone", "Resources": {"CPU": cores}}
        for name, cores in {"c": 2.0, "b": 1.0, "none": 0.0, "gone": 8.0, "own": 1.0}.items()
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(listing, "own_id", lambda: "own")
    assert [node["NodeID"] for node in listing.with_cores()] == ["own", "b", "c"]
    # If no machine has a core, the launcher's plays alone.
    for node in nodes:
        node["Resources"] = {"CPU": 0.0}
    assert [node["NodeID"] for node in listing.with_cores()] == ["own"]
