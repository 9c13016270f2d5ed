"""What is said of ranks that wait."""

from ragen.distributed.watch import IDLE, Watch


def test_the_watchdog_says_who_holds_up_whom():
    watch = Watch(3, now=0.0)
    watch.notes, watch.moved = [("update_actor", 5), ("update_actor", 3), (IDLE, 0)], [7.0, 4.0, 9.0]
    first, second, third = watch.describe_waiting(10.0).splitlines()
    assert first == "  worker 0: update_actor, 5 pieces done, no news for 3 s, waits for others"
    assert second == "  worker 1: update_actor, 3 pieces done, no news for 6 s, holds up the others"
    assert third.endswith("has finished")
    even = Watch(2, now=0.0)
    even.notes = [("save", 0), ("save", 0)]
    assert even.describe_waiting(1.0).count("is as far as all others") == 2
