"""What a curve of one hour on Pong is summed up as."""

from pathlib import Path

from benchmarks.pong_hour import draw, summary

LINE = [(40.0, 25_000, -21.0), (600.0, 400_000, -1.5), (1200.0, 800_000, 0.5), (3600.0, 2_400_000, 19.2)]


def test_each_level_is_reached_where_the_curve_first_is_as_high() -> None:
    found = summary(LINE)
    assert (found["mean_return"], found["frames"], found["frames_per_s"]) == (19.2, 9_600_000, 2667)
    assert found["minutes_to"] == {0: 20.0, 10: 60.0, 18: 60.0}
    assert summary(LINE[:2])["minutes_to"] == {0: None, 10: None, 18: None}


def test_both_curves_are_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "hour.png", {"penstock": LINE, "Sample Factory": LINE[:2]})
    assert (tmp_path / "hour.png").stat().st_size > 10_000
