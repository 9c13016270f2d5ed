"""Published numbers and ours, side by side."""

from dataclasses import replace

from ragen.reproduce.claims import CLAIMS
from ragen.reproduce.figure import draw, wrapped
from tests.plotting.png import has_drawing, pixels
from tests.reproduce.test_records import a_record


def test_the_figure_shows_both_sides(tmp_path):
    record = a_record(tmp_path)
    both = draw(CLAIMS["C29"], record, tmp_path / "both.png")
    ours = replace(record.finding, points=tuple(replace(point, published=None) for point in record.finding.points))
    one = draw(CLAIMS["C29"], replace(record, finding=ours), tmp_path / "one.png")
    assert has_drawing(both) and has_drawing(one)
    blue = [(pixels(path)[..., 2] - pixels(path)[..., 0] > 0.3).mean() for path in (both, one)]
    assert blue[1] > 1.5 * blue[0], "ours alone takes the whole width"


def test_labels_stand_below_each_other():
    assert wrapped("top-p 0.9") == "top-p\n0.9"
