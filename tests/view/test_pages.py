"""The files of the page."""

import base64
import hashlib

import pytest

from ragen.view.pages import read_page_file, script_hashes
from ragen.view.reading.folders import NotThere


def test_a_module_has_the_type_that_browsers_run(tmp_path):
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "x.js").write_text("export {}")
    assert read_page_file("vendor/x.js", tmp_path) == (b"export {}", "text/javascript")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", ".", "vendor", "vendor/../../secret", "x\0"])
def test_nothing_outside_the_page_is_a_file_of_it(tmp_path, name):
    (tmp_path / "page" / "vendor").mkdir(parents=True)
    (tmp_path / "secret").write_text("no")
    with pytest.raises(NotThere):
        read_page_file(name, tmp_path / "page")


def test_the_import_map_may_run_and_no_other_script():
    html = b'<script type="importmap">{"imports": {}}</script><script>alert(1)</script>'
    expected = base64.b64encode(hashlib.sha256(b'{"imports": {}}').digest()).decode()
    assert script_hashes(html) == [f"sha256-{expected}"]
