"""The models as PyTorch modules, with one input and logits whose last axis is the classes."""
