"""What figures share."""

import os

import pytest

from ragen.errors import RagenError
from ragen.plotting.style import label_points, new_figure, number, save_figure


def test_labels_of_points_do_not_cover_each_other():
    figure = new_figure(4, 3)
    axis = figure.subplots()
    points = {f"Q{n}": (0.1 * n, 1.0 + 0.1 * (n % 2)) for n in range(1, 9)} | {"Q9": (0.9, 1.1), "Q10": (0.9001, 1.1)}
    axis.plot(*zip(*points.values(), strict=True), "o")
    figure.draw_without_rendering()
    label_points(axis, points)
    labels = [text for text in axis.texts if text.get_text()]  # lines to far labels are texts without words
    assert [label.get_text() for label in labels] == [*(f"Q{n}" for n in range(1, 9)), "Q9-Q10"]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


@pytest.mark.parametrize(("value", "text"), [(26.0, "26"), (0.04312, "0.0431"), (-1.34e-4, "-1.34e-4"), (0.0, "0")])
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_figure_that_cannot_be_written_names_the_file_that_was_asked_for(tmp_path):
    name = "x" * os.pathconf(tmp_path, "PC_NAME_MAX")  # as long as may be; its temporary file is longer
    with pytest.raises(RagenError, match=f"{name} cannot be written: File name too long. Give another file"):
        save_figure(new_figure(1, 1), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
