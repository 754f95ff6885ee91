"""Fine-tuning jobs as people bring them, each in a module with a function `run`; `examples/finetune.py` runs them."""
