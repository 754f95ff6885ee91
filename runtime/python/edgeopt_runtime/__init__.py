"""The device runtime: load, step, predict, save. Needs numpy, onnxruntime and safetensors, nothing else."""
