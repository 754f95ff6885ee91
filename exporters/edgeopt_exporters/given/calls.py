"""Arguments of other frameworks' calls, and what to give in their place."""

from __future__ import annotations

__all__ = ["INSTEAD"]

# Arguments that torch.onnx.export, Keras and transformers have for what is given otherwise here.
_RATE = "the rate is the optimizer's: optimizer=edgeopt.optimizers.AdamW(lr=1e-3)"
_DEVICE = "it belongs to training, on the device: TrainingSession.load(path).fit(batches, epochs=...)"
_NAMES = "inputs are called as the parameters of forward, outputs as session.manifest.outputs says"
_PATH = 'bundle.save("model.edgeopt") writes what export returns'
INSTEAD = {
    "args": "give example_inputs=",
    "batch_size": _DEVICE,
    "clip_grad_norm": "give transforms=edgeopt.transforms.ClipByGlobalNorm(...)",
    "criterion": "give loss=",
    "dynamic_axes": "give dynamic_shapes={'tokens': {1: 'sequence'}}; axis 0 is symbolic anyway",
    "epochs": _DEVICE,
    "example_input": "give example_inputs=",
    "f": _PATH,
    "input_names": _NAMES,
    "inputs": "give example_inputs=",
    "kwargs": "give example_inputs= as a dict by the names of forward",
    "learning_rate": _RATE,
    "loss_fn": "give loss=",
    "loss_function": "give loss=",
    "lr": _RATE,
    "lr_scheduler": _RATE,
    "max_grad_norm": "give transforms=edgeopt.transforms.ClipByGlobalNorm(...)",
    "opset_version": "every bundle has the opset that its oldest ONNX Runtime knows, which bundle.manifest says",
    "output_names": _NAMES,
    "params": "give trainable= and patterns of parameter names",
    "path": _PATH,
    "sample_inputs": "give example_inputs=",
    "schedule": _RATE,
    "scheduler": _RATE,
}
