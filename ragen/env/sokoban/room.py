"""Sokoban levels: a random room, then boxes pulled away from their targets, so that every level can be solved.

The search runs over pulls, not over steps: a state is the set of boxes together with the region the player can walk
in. All sets of cells are integers (see `ragen.env.bits`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ragen.env.bits import flood, moves, singles, to_row_col
from ragen.errors import ConfigError
from ragen.seeding import Rng

MAX_ROOMS = 20_000
"""Rooms tried before a configuration counts as impossible; a usual one succeeds within the first few."""
MAX_ARRANGEMENTS = 10_000
"""Arrangements of the boxes looked at per room; only rooms with many boxes have more."""
MAX_TOTAL = 50_000
"""Arrangements looked at, over all rooms, before a configuration counts as impossible: some seconds."""
MAX_WIDTH = 200
"""States kept among those with the same number of steps; small rooms have fewer, so they are searched completely."""

# Floor painted around the walker: row, column, two corners, square; (row, column) steps from the walker's cell.
BRUSHES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, 1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
)


@dataclass(frozen=True, slots=True)
class Level:
    """One solvable level; every set of cells is an integer."""

    rows: int
    columns: int
    floor: int
    """Every cell that is not a wall."""
    targets: int
    boxes: int
    player: int


@dataclass(frozen=True, slots=True)
class Tables:
    """What depends on the room's size only, computed once."""

    inner: tuple[int, ...]
    """Indices of the cells inside the outer wall."""
    neighbours: tuple[dict[int, int], ...]
    """Per direction: where a walker that starts at an inner cell stands after one step; it stays at the outer wall."""
    strokes: dict[int, tuple[int, ...]]
    """Inner cell -> the floor each brush paints around it."""


@lru_cache(maxsize=64)
def tables(rows: int, columns: int) -> Tables:
    """The tables of a room size."""
    inner = [(row, col) for row in range(1, rows - 1) for col in range(1, columns - 1)]
    is_inner = set(inner)

    def index(row: int, col: int) -> int:
        return row * columns + col

    def step(row: int, col: int, down: int, right: int) -> int:
        ahead = (row + down, col + right)
        return index(*(ahead if ahead in is_inner else (row, col)))

    def stroke(row: int, col: int, brush: tuple[tuple[int, int], ...]) -> int:
        painted = [(row + down, col + right) for down, right in brush]
        return sum(1 << index(*cell) for cell in painted if cell in is_inner)

    return Tables(
        inner=tuple(index(*cell) for cell in inner),
        neighbours=tuple(
            {index(*cell): step(*cell, *move) for cell in inner} for move in ((-1, 0), (1, 0), (0, -1), (0, 1))
        ),
        strokes={index(*cell): tuple(stroke(*cell, brush) for brush in BRUSHES) for cell in inner},
    )


@lru_cache(maxsize=4096)
def distances_from(cell: int, rows: int, columns: int) -> dict[int, int]:
    """Manhattan distance from a cell to every cell of the board."""
    row, col = to_row_col(cell, columns)
    return {1 << (r * columns + c): abs(row - r) + abs(col - c) for r in range(rows) for c in range(columns)}


def generate_level(rows: int, columns: int, *, num_boxes: int, search_depth: int, seed: int) -> Level:
    """The level of a seed: solvable, with no box on a target, the same on every machine.

    A room in which the boxes cannot all be pulled off their targets is thrown away for the next one, whose random
    stream follows from the seed and the number of the attempt.
    """
    total = 0
    for attempt in range(MAX_ROOMS):
        rng = Rng(seed, "sokoban", attempt)
        floor = paint_floor(rows, columns, rng)
        cells = singles(floor)
        if len(cells) <= num_boxes + 1:
            continue
        player, *targets = rng.sample(cells, num_boxes + 1)
        hardest, num_seen = pull_boxes(floor, targets, player, rows=rows, columns=columns, search_depth=search_depth)
        if hardest:
            boxes, player, distance = rng.choice(hardest)
            player = walk_player(player, floor & ~boxes, is_near=distance == 1, columns=columns, rng=rng)
            return Level(rows, columns, floor, sum(targets), boxes, player)
        total += num_seen
        if total > MAX_TOTAL:
            break
    raise ConfigError(
        f"sokoban: found no level for num_boxes {num_boxes} and search_depth {search_depth} in rooms of "
        f"{rows}x{columns}. Use fewer boxes, a larger dim_x and dim_y, or a larger search_depth."
    )


def paint_floor(rows: int, columns: int, rng: Rng) -> int:
    """The floor of a room, painted along a random walk that never reaches the outer wall."""
    table = tables(rows, columns)
    neighbours, strokes = table.neighbours, table.strokes
    next_word = rng.next
    cell = rng.choice(table.inner)
    ahead = neighbours[rng.below(4)]
    floor = 0
    for _ in range(int(1.7 * (rows + columns))):
        word = next_word()  # one word per step: its low, middle and high bits make the three choices
        if word % 20 < 7:  # a turn with probability 0.35
            ahead = neighbours[word >> 16 & 3]
        cell = ahead[cell]
        floor |= strokes[cell][(word >> 32) % 5]
    return floor


def pull_boxes(
    floor: int, targets: list[int], player: int, *, rows: int, columns: int, search_depth: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Play backwards from the solved room: (the hardest states as (boxes, player, distance), arrangements seen).

    Reverse moves are explored in order of their number of player steps, `search_depth` at most, so the boxes of the
    result can be pushed home in as many. Hardness is (number of changes of the pulled box, the first one included) *
    (sum of the distances from each box to its own target); a state with a covered target has none.
    """
    home = [distances_from(target, rows, columns) for target in targets]
    covered = sum(targets)
    by_direction = moves(columns)
    # A node: boxes, player after the pull, cell of each box, distance sum, box pulled last, changes of the box.
    queue: list[list[tuple]] = [[(covered, player, tuple(targets), 0, -1, 0)]]
    seen: dict[int, int] = {}  # boxes -> player cells that were looked at
    best: list[tuple[int, int, int]] = []
    best_hardness = 1

    for num_steps, nodes in enumerate(queue):  # the queue grows while it is read
        if len(seen) > MAX_ARRANGEMENTS:
            break
        if len(nodes) > MAX_WIDTH:  # keep those with the fewest boxes still at home, then the hardest
            nodes.sort(key=lambda node: ((node[0] & covered).bit_count(), -node[3] * node[5]))
        for boxes, player, cells, distance, last, changes in nodes[:MAX_WIDTH]:
            known = seen.get(boxes, 0)
            if known & player:
                continue

            # 1. Walk: everything the player can reach from here counts as seen.
            free = floor & ~boxes
            layers, reached = flood(player, free, columns)
            seen[boxes] = known | reached

            # 2. Compare.
            hardness = 0 if boxes & covered else distance * changes
            if hardness > best_hardness:
                best_hardness, best = hardness, []
            if hardness == best_hardness:
                best.append((boxes, player, distance))

            # 3. Pull: the player stands beside a box, has a free cell behind and steps back into it.
            for left, right in by_direction:
                for spot in singles((boxes << left >> right) & reached & (free << right >> left)):
                    box, back = spot << right >> left, spot << left >> right
                    pulled = boxes ^ box ^ spot
                    if seen.get(pulled, 0) & back:
                        continue
                    cost = num_steps + 1
                    while not layers[cost - num_steps - 1] & spot:
                        cost += 1
                    if cost > search_depth:
                        continue
                    while len(queue) <= cost:
                        queue.append([])
                    which = cells.index(box)
                    now = (*cells[:which], spot, *cells[which + 1 :])
                    farther = distance + home[which][spot] - home[which][box]
                    queue[cost].append((pulled, back, now, farther, which, changes + (which != last)))
    return best, len(seen)


def walk_player(player: int, free: int, *, is_near: bool, columns: int, rng: Rng) -> int:
    """Let the player stroll up to three steps away from the last pull, over free cells it has not stood on.

    Strolling keeps the level solvable, since the way back is free. A level with one box one step from its target
    (`is_near`) would often be a single push, so it strolls more often.
    """
    if rng.random() >= (0.8 if is_near else 0.5):
        return player
    unvisited = free & ~player
    for step in range(3):
        if step and rng.random() < 0.5:
            break
        beside = (player << 1 | player >> 1 | player << columns | player >> columns) & unvisited
        if not beside:
            break
        player = rng.choice(singles(beside))
        unvisited ^= player
    return player
