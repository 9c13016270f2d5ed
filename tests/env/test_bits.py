"""Sets of cells as integers: steps, walks and floods on a board of two rows and three columns."""

from ragen.env.bits import flood, moved, moves, moves_by_action, row_cols, shortest_walk, singles

STRIDE = 4
BOARD = 0b0111_0111
CORNER, CENTRE = 0b0000_0001, 0b0000_0010  # (0, 0) and (0, 1)


def test_a_step_moves_every_cell_at_once():
    up, down, left, right = moves(STRIDE)
    assert moved(CENTRE, right) == 0b0100
    assert moved(CENTRE, left) == CORNER
    assert row_cols(moved(CORNER | CENTRE, down), STRIDE) == [(1, 0), (1, 1)]
    assert moved(moved(CENTRE, down), up) == CENTRE


def test_actions_step_as_they_are_named():
    names = {7: "Down", 9: "Left"}
    by_action = moves_by_action(names, STRIDE)
    assert row_cols(moved(CENTRE, by_action[7]), STRIDE) == [(1, 1)]
    assert row_cols(moved(CENTRE, by_action[9]), STRIDE) == [(0, 0)]


def test_a_set_is_taken_apart_in_reading_order():
    assert singles(0b101) == [0b1, 0b100]
    assert row_cols(0b0001_0100, STRIDE) == [(0, 2), (1, 0)]


def test_a_flood_goes_one_step_at_a_time_and_never_around_the_edge():
    layers, reached = flood(CORNER, BOARD, STRIDE)
    assert [layer.bit_count() for layer in layers] == [1, 2, 2, 1]
    assert reached == BOARD


def test_a_walk_is_shortest_and_the_action_listed_first_wins():
    by_action = moves_by_action({1: "Up", 2: "Down", 3: "Left", 4: "Right"}, STRIDE)
    goal = 1 << (STRIDE + 2)  # (1, 2)
    walk = shortest_walk(CORNER, goal, BOARD, STRIDE, by_action)
    assert sorted(walk) == [2, 4, 4]
    assert walk == shortest_walk(CORNER, goal, BOARD, STRIDE, by_action)
    assert shortest_walk(CORNER, goal, CORNER, STRIDE, by_action) is None
