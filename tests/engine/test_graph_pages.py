"""Pages of the key-value cache, on a CPU."""

import torch

from ragen.engine.graph.pages import PagePool, PageTables
from ragen.engine.sessions import Group
from tests.engine.requests import open_session, prompt

CPU = torch.device("cpu")


def test_a_page_is_free_when_its_last_holder_drops_it():
    pool = PagePool(1024, CPU)
    pages = pool.take(3)
    assert len(set(pages)) == 3
    pool.share(pages[:1])
    pool.drop(pages)
    assert pool.num_held == 1 and not pool.is_shared(pages[0])
    pool.drop(pages[:1])
    assert pool.num_held == 0


def test_memory_grows_by_segments_and_goes_when_asked(monkeypatch):
    monkeypatch.setattr("ragen.engine.graph.pages.SEGMENT_BYTES", 4096)
    pool = PagePool(1024, CPU)
    first = pool.take(3)
    assert pool.num_bytes == 4096
    assert not set(first) & set(pool.take(6))
    assert pool.num_bytes == 4096 + 5 * 1024  # one page was left, five more were needed
    pool.clear(free_memory=False)
    assert (pool.num_held, pool.num_bytes) == (0, 4096 + 5 * 1024)
    pool.take(9)
    assert pool.num_bytes == 4096 + 5 * 1024  # all nine were free
    pool.clear(free_memory=True)
    assert (pool.num_held, pool.num_bytes) == (0, 0)


def tables() -> PageTables:
    """Pages of 4 tokens."""
    return PageTables(PagePool(1024, CPU), page_tokens=4)


def test_a_session_has_pages_for_its_prompt_and_its_longest_reply():
    pages, session = tables(), open_session(0, prompt(5), max_tokens=8)
    assert pages.reserve(session) == []
    assert len(pages[0]) == 4  # 13 tokens
    session.cached = [*session.request.prompt_ids, 7]
    pages.trim(session)
    assert len(pages[0]) == pages.pool.num_held == 2
    pages.drop(session)
    assert pages.pool.num_held == 0


def test_followers_share_full_pages_and_copy_the_begun_one():
    pages = tables()
    leader, follower = open_session(0, prompt(6), max_tokens=2), open_session(1, prompt(6), max_tokens=6)
    group = Group(leader, [follower])
    pages.reserve(leader)
    pages.share(group)
    assert (len(pages[0]), len(pages[1])) == (2, 3)
    assert pages[0][0] == pages[1][0]
    assert pages.begun_copies(group) == [(pages[0][1], pages[1][1])]
    assert pages.pool.num_held == 1 + 1 + 2


def test_prompts_of_whole_pages_leave_nothing_to_copy():
    pages, group = tables(), Group(open_session(0, prompt(8)), [open_session(1, prompt(8))])
    pages.reserve(group.leader)
    pages.share(group)
    assert pages[0][:2] == pages[1][:2]
    assert pages.begun_copies(group) == []


def test_a_shared_page_is_copied_before_it_is_written_to():
    pages = tables()
    leader, follower = open_session(0, prompt(8), max_tokens=1), open_session(1, prompt(8), max_tokens=1)
    pages.reserve(leader)
    pages.share(Group(leader, [follower]))
    shared = pages[0][1]
    changed = open_session(0, prompt(8), num_cached=6, max_tokens=1)  # differs from the seventh token on
    [(source, own)] = pages.reserve(changed)
    assert source == shared == pages[1][1]
    assert own == pages[0][1] != shared
    assert pages[0][0] == pages[1][0]


def test_a_cleared_table_holds_nothing():
    pages = tables()
    pages.reserve(open_session(0, prompt(8)))
    pages.clear(free_memory=True)
    assert (pages.pool.num_held, pages.pool.num_bytes) == (0, 0)
    pages.drop(open_session(0, prompt(8)))  # nothing is dropped twice
