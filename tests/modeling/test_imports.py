"""What importing the package needs."""

import subprocess
import sys

CODE = """
import importlib, pkgutil, sys
sys.modules["triton"] = None  # any import of it fails
import ragen.modeling
for module in pkgutil.walk_packages(ragen.modeling.__path__, "ragen.modeling."):
    if ".kernels." not in module.name:
        importlib.import_module(module.name)
try:
    import ragen.modeling.kernels.norm
except ImportError:
    sys.exit(0)
sys.exit("kernels came without Triton")
"""


def test_only_kernels_need_triton():
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
