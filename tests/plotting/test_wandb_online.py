"""A run at a W&B server gives the same figures."""

import json

import pytest

from tests.plotting.drawing import contents, run_script
from tests.plotting.synthetic import COLUMNS, log_run
from tests.plotting.wandb_server import KEY, serve


def wandb_content() -> dict:
    """Rows, files and summary as the server has them: tables are references to files."""
    rows, files, summary = [], {}, {}
    for step, metrics, own in log_run():
        row = {"_step": step, "_runtime": 1.5, "_timestamp": 1.7e9, **metrics}
        for name, cells in own.items():
            path = f"media/table/{name}_{step}.table.json"
            files[path] = json.dumps({"columns": COLUMNS, "data": cells}).encode()
            row[name] = {"_type": "table-file", "path": path, "ncols": 3, "nrows": len(cells), "size": len(files[path])}
        rows.append(row)
        summary |= row
    return {"rows": rows, "files": files, "summary": summary}


def test_a_run_at_the_server_gives_the_same(drawn, tmp_path):
    pytest.importorskip("wandb")
    with serve(**wandb_content()) as server:
        login = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url}
        result = run_script("--wandb-path", "entity/project/abc123", "--step", 51, cwd=tmp_path, **login)
        assert result.returncode == 0, result.stderr
        folder = tmp_path / "gradient_analysis_outputs" / "my_run_abc123"
        assert contents(folder) == contents(drawn)
        assert any("history(" in query for query in server.queries)

        result = run_script("--wandb-path", "entity/project/nobody", cwd=tmp_path, **login)
        assert result.returncode == 1
        assert "entity/project/nobody: the W&B server does not give this run" in result.stderr
        assert "Traceback" not in result.stderr


def test_without_a_login_the_message_says_what_to_set(tmp_path):
    pytest.importorskip("wandb")
    result = run_script("--wandb-path", "entity/project/abc123", cwd=tmp_path, WANDB_BASE_URL="http://127.0.0.1:9")
    assert result.returncode == 1
    assert "there is no W&B login. Set WANDB_API_KEY or run `wandb login`" in result.stderr
    result = run_script("--wandb-path", "entity/project/abc123", cwd=tmp_path, WANDB_API_KEY="short")
    assert result.returncode == 1 and "WANDB_API_KEY invalid" in result.stderr.splitlines()[-1]
