"""One piece of work beside the loop."""

from threading import Event

import pytest

from ragen.trainer.checkpoints.background import Background


def test_what_goes_wrong_is_raised_once_where_the_loop_asks():
    background, go = Background(), Event()

    def fail() -> None:
        go.wait()
        raise OSError("disk full")

    background.begin(fail)
    background.check()  # under way
    go.set()
    with pytest.raises(OSError, match="disk full"):
        background.wait()
    background.check()
    background.wait()


def test_work_that_is_done_makes_room_for_the_next():
    background, done = Background(), []
    for number in (1, 2):
        background.begin(lambda number=number: done.append(number))
        background.wait()
    assert done == [1, 2]
