"""The page as one file."""

import base64
import gzip
import json
import re

from ragen.view.bundle import bundle, content_security_policy, modules, pack
from ragen.view.pages import PAGE


def test_nothing_of_the_page_is_left_on_a_server():
    html = bundle({"report": "QQ=="})
    assert not re.search(r'(?:src|href)="(?!data:)', html)
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", html)
    assert '<script type="text/plain" id="report">QQ==</script>\n</body>' in html


def test_every_module_is_there_under_its_name():
    found = modules({"preact": "/assets/vendor/preact.js", "app/": "/assets/"})
    assert set(found) - {"preact"} == {
        f"app/{path.name}" for path in PAGE.glob("*.js") if path.name not in ("theme.js", "live_worker.js")
    }
    kind, _, content = found["app/main.js"].partition(";base64,")
    assert kind == "data:text/javascript"
    assert base64.b64decode(content) == (PAGE / "main.js").read_bytes()


def test_the_policy_names_what_stands_in_the_page_and_allows_no_connection():
    html = bundle({})
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', html)
    assert policy and html.index(policy[0]) < html.index("<script")
    parts = dict(part.split(" ", 1) for part in policy[1].split("; "))
    assert parts["default-src"] == "'none'"
    assert parts["script-src"].count("sha256-") == 3  # theme, import map, the first import
    assert not {"connect-src", "worker-src"} & parts.keys()
    assert "unsafe" not in policy[1]
    # echo -n a | sha256sum, in base64
    assert "'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='" in content_security_policy(["a"], [])


def test_a_block_holds_no_letter_that_html_knows():
    text = json.dumps({"reply": "</script><!--<script>\0\u202e"}).encode()
    packed = pack(text)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed)
    assert gzip.decompress(base64.b64decode(packed)) == text
