"""edgeopt: export a whole training step as one ordinary ONNX graph."""
