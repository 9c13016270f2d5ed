"""Shortest Sokoban solutions, counted in player moves.

The search runs over pushes: between two pushes the player takes a shortest walk, so only the states right after a push
are kept. They are visited in order of their number of moves, which makes the first solved one the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ragen.env.bits import Move, flood, moved, moves, moves_by_action, shortest_walk, singles
from ragen.env.sokoban.room import Level

ACTIONS = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
MAX_STATES = 100_000
"""States visited before the search gives up (a second or two); a 6x6 room with one box has about a hundred."""

State = tuple[int, int]  # (boxes, player)


@dataclass(frozen=True, slots=True)
class Search:
    """What the search for a solution found."""

    actions: tuple[int, ...] | None
    """Action ids of a shortest solution; None where there is none, or none was found."""
    is_cut: bool = False
    """It gave up at its limit: whether there is a solution is not known."""


def live_cells(level: Level) -> int:
    """The cells from which a box, alone in the room, can be pushed to some target; on any other cell it is lost."""
    live, grown = 0, level.targets
    while grown != live:
        live = grown
        for left, right in moves(level.columns):
            # A box one cell before a live one, with floor behind it for the player.
            grown |= (live << right >> left) & level.floor & (level.floor << left >> right)
    return live


@lru_cache(maxsize=4096)  # a demonstration asks for the same state's solution and hint
def search(level: Level, max_states: int = MAX_STATES) -> Search:
    """Look for a shortest solution. The limit counts states and not seconds, so every machine finds the same."""
    live = live_cells(level)
    if level.boxes & ~live:
        return Search(None)
    by_action = moves_by_action(ACTIONS, level.columns)
    start = (level.boxes, level.player)
    # A node: the state after a push, the state before it, the action that pushed.
    queue: list[list[tuple[State, State | None, int]]] = [[(start, None, 0)]]
    came_from: dict[State, tuple[State | None, int]] = {}

    for num_moves, nodes in enumerate(queue):  # the queue grows while it is read
        for state, before, pushed in nodes:
            if state in came_from:
                continue
            came_from[state] = before, pushed
            boxes, player = state
            if boxes == level.targets:
                return Search(trace(level, state, came_from, by_action))
            if len(came_from) > max_states:
                return Search(None, is_cut=True)

            free = level.floor & ~boxes
            layers, reached = flood(player, free, level.columns)
            for action, (left, right) in by_action.items():
                # The cell behind the box must be free and live; seen from the player it is two steps ahead.
                ahead = boxes & ((free & live) << right >> left)
                for spot in singles(reached & (ahead << right >> left)):
                    box = spot << left >> right
                    after = (boxes ^ box | box << left >> right, box)
                    if after in came_from:
                        continue
                    cost = num_moves + 1
                    while not layers[cost - num_moves - 1] & spot:
                        cost += 1
                    while len(queue) <= cost:
                        queue.append([])
                    queue[cost].append((after, state, action))
    return Search(None)


def trace(
    level: Level, state: State, came_from: dict[State, tuple[State | None, int]], by_action: dict[int, Move]
) -> tuple[int, ...]:
    """The moves that lead to a state: its pushes, with the walks between them filled in."""
    actions: list[int] = []
    before, pushed = came_from[state]
    while before is not None:
        left, right = by_action[pushed]
        spot = state[1] << right >> left  # where the player stood to push: one step back
        walk = shortest_walk(before[1], spot, level.floor & ~before[0], level.columns, by_action)
        assert walk is not None, "the search reached this cell"
        actions = [*walk, pushed, *actions]
        state = before
        before, pushed = came_from[state]
    return tuple(actions)


def first_push(level: Level, solution: tuple[int, ...]) -> tuple[int, int]:
    """(cell of the box that the solution pushes first, cell where that box ends)."""
    by_action = moves_by_action(ACTIONS, level.columns)
    player, boxes = level.player, level.boxes
    first = now = 0
    for action in solution:
        player = moved(player, by_action[action])
        if player & boxes:
            ahead = moved(player, by_action[action])
            boxes ^= player | ahead
            if not first:
                first, now = player, ahead
            elif now == player:
                now = ahead
    return first, now
