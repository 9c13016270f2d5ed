"""Two engines, one of which does what the other is told."""

from queue import SimpleQueue
from threading import Thread

from ragen.engine.base import Request, SamplingParams, Total
from ragen.engine.scripted import ScriptedEngine
from ragen.engine.shared import Orders, SharedEngine


class NotingEngine(ScriptedEngine):
    """Finishes one request a step, and remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__(lambda request: f"{request.session}", per_step=1)
        self.calls: list[tuple] = []

    def submit(self, request: Request) -> None:
        self.calls.append(("submit", request.session))
        super().submit(request)

    def step(self):
        finished = super().step()
        self.calls.append(("step", [completion.session for completion in finished]))
        return finished

    def release(self, session: int) -> None:
        self.calls.append(("release", session))
        super().release(session)

    def end_rollout(self) -> None:
        self.calls.append(("end_rollout",))

    def metrics(self, total: Total = dict):
        return total({"rollout/calls": len(self.calls)})


def request(session: int) -> Request:
    return Request(session=session, prompt_ids=[1], params=SamplingParams(max_tokens=4), seed=0)


def test_what_the_engine_says_is_said_and_what_it_counts_is_summed():
    ours = NotingEngine()
    ours.note = "slower than it might"
    ours.end_rollout()
    shared = SharedEngine(ours, lambda orders: orders, is_leader=True)
    assert shared.note == "slower than it might"
    assert shared.metrics(lambda counts: {name: 2 * count for name, count in counts.items()}) == {"rollout/calls": 2}


def test_a_follower_makes_the_same_calls_in_the_same_order():
    ours, theirs = NotingEngine(), NotingEngine()
    channel: SimpleQueue[Orders | None] = SimpleQueue()
    leader = SharedEngine(ours, lambda orders: channel.put(orders), is_leader=True)
    other = SharedEngine(theirs, lambda _: channel.get(), is_leader=False)
    has_followed = []
    follower = Thread(target=lambda: has_followed.append(other.follow()))
    follower.start()
    assert not leader.follow()
    leader.submit(request(0))
    leader.submit(request(1))
    assert [completion.session for completion in leader.step()] == [0]
    leader.release(0)
    leader.submit(request(2))
    leader.step()
    leader.step()
    leader.end_rollout()
    follower.join(timeout=10)
    assert has_followed == [True]
    assert theirs.calls == ours.calls
    assert theirs.calls == [
        ("submit", 0),
        ("submit", 1),
        ("step", [0]),
        ("release", 0),
        ("submit", 2),
        ("step", [1]),
        ("step", [2]),
        ("end_rollout",),
    ]
