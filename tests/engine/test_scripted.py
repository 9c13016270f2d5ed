from ragen.engine.base import Request, SamplingParams, StopReason
from ragen.engine.scripted import ScriptedEngine


class LetterTokenizer:
    """One token per letter: a -> 1, b -> 2, ..."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) - ord("a") + 1 for letter in text]


def request(session: int = 0, *, max_tokens: int = 10, stop_token_ids: tuple[int, ...] = (99,)) -> Request:
    params = SamplingParams(max_tokens=max_tokens, stop_token_ids=stop_token_ids)
    return Request(session=session, prompt_ids=[1], params=params, seed=0)


def only_completion(engine: ScriptedEngine, asked: Request):
    engine.submit(asked)
    [completion] = engine.step()
    return completion


def test_a_text_is_encoded_and_closed_with_the_stop_token():
    completion = only_completion(ScriptedEngine(lambda _: "abc", LetterTokenizer()), request())
    assert completion.token_ids == [1, 2, 3, 99]
    assert completion.logprobs == [0.0] * 4
    assert completion.text is None
    assert completion.stop_reason == StopReason.STOP_TOKEN


def test_a_text_without_tokenizer_stays_a_text():
    completion = only_completion(ScriptedEngine(lambda _: "abc"), request())
    assert completion.text == "abc"
    assert completion.token_ids == []


def test_token_ids_are_carried_as_written():
    completion = only_completion(ScriptedEngine(lambda _: [5, 6, 99]), request())
    assert completion.token_ids == [5, 6, 99]
    assert completion.stop_reason == StopReason.STOP_TOKEN


def test_a_reply_that_does_not_end_with_a_stop_token_ended_on_a_string():
    completion = only_completion(ScriptedEngine(lambda _: "ab", LetterTokenizer()), request(stop_token_ids=()))
    assert completion.token_ids == [1, 2]
    assert completion.stop_reason == StopReason.STOP_STRING


def test_a_long_reply_is_cut_at_max_tokens():
    completion = only_completion(ScriptedEngine(lambda _: "abc", LetterTokenizer()), request(max_tokens=3))
    assert completion.token_ids == [1, 2, 3]
    assert completion.stop_reason == StopReason.LENGTH


def test_requests_finish_in_the_order_they_came_per_step_many_at_a_time():
    engine = ScriptedEngine(lambda asked: [asked.session], per_step=2)
    for session in (3, 1, 2):
        engine.submit(request(session))
    assert [[completion.session for completion in engine.step()] for _ in range(3)] == [[3, 1], [2], []]
