"""Numbers on the command line that cannot be meant are refused where they are typed."""

import pytest

from ragen.cli import main

WRONG = {
    "study --seeds -1": "whole number from 1 to 1000",
    "study --seeds 0": "whole number from 1 to 1000",
    "study --slots nan": "whole number from 1",
    "sweep kl --seeds 100000000000": "whole number from 1 to 1000",
    "sweep kl --steps 1000000000000000000000000": "whole number from 1",
    "show . --limit -1": "whole number from 1",
    "replay-filter . --reward-scale nan": "not a finite number",
    "replay-filter . --reward-scale inf": "not a finite number",
    "demo --levels 0": "whole number from 1",
    "verify-resume --steps -1": "whole number from 1",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_number_is_refused(line: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2 and WRONG[line] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("study trainer.nope=1", "trainer.nope: unknown key"),
        ("study nope", "'nope' is not an override"),
        ("sweep to-p", "Did you mean top-p?"),
        ("plot NOPE", "NOPE does not exist"),
        ("scaling NOPE", "NOPE does not exist"),
        ("show NOPE", "NOPE does not exist"),
        ("replay-filter NOPE", "NOPE does not exist"),
        ("eval NOPE", "'NOPE' is neither a local directory"),
        ("config nope", "'nope' is not an override"),
        ("check _2_sokoban", "'_2_sokoban' is not an override. Write --config-name _2_sokoban."),
        ("serve countdown --port 0 num_number=3", "Did you mean countdown.num_numbers"),
        ("study trainer.a=1 --seeds 2 trainer.nope=1", "trainer.a: unknown key"),
        ("plot NOPE --out a.png NOPE", "NOPE does not exist"),
        ("scaling NOPE --out a.png NOPE", "NOPE does not exist"),
        ("diagnose NOPE --json NOPE", "NOPE does not exist"),
        ("view NOPE --port 0 NOPE", "NOPE does not exist"),
    ],
)
def test_a_clumsy_command_is_one_sentence(line: str, words: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) in (1, 2)
    said = capsys.readouterr()
    assert words in said.err and "Traceback" not in said.err
