"""The benchmark of the live page runs, on folders that are small."""

import benchmarks.view_scale as benchmark


def test_every_figure_is_printed(tmp_path, monkeypatch, capsys):
    for name, value in {"RUNS": 2, "EPISODES": 4, "STEPS": 10, "GROUP_SIZE": 2, "REPEATS": 2}.items():
        monkeypatch.setattr(benchmark, name, value)
    benchmark.main(["--folder", str(tmp_path), "--scale", "0.2"])
    text = capsys.readouterr().out
    assert "2 runs, first list" in text
    assert "one run of 2 steps x 4 episodes" in text
    assert text.count("memory of the server") == 2
