"""Makes the model by which codes of words are multiplied, and prints the hash that is expected.

The library onnx writes it, in an environment of its own; nothing else needs it:

    python3 -m venv /tmp/onnx
    /tmp/onnx/bin/pip install onnx==1.23.2
    /tmp/onnx/bin/python scripts/make_product_model.py
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import onnx
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

OUTPUT: Final = Path(__file__).parents[1] / "dptext_spark" / "search" / "product.onnx"

OPSET: Final = 13
IR_VERSION: Final = 8
"""The versions that onnxruntime 1.20 and later read."""


def main() -> None:
    """Write the model."""
    node = make_node("MatMulInteger", inputs=["words", "points"], outputs=["scores"])
    words = make_tensor_value_info("words", onnx.TensorProto.UINT8, ["w", "K"])
    points = make_tensor_value_info("points", onnx.TensorProto.INT8, ["K", "t"])
    scores = make_tensor_value_info("scores", onnx.TensorProto.INT32, ["w", "t"])
    graph = make_graph([node], "product", inputs=[words, points], outputs=[scores])
    model = make_model(graph, opset_imports=[make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    OUTPUT.write_bytes(model.SerializeToString())
    print(f"{OUTPUT.stat().st_size} bytes")
    print(hashlib.sha256(OUTPUT.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
