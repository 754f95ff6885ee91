"""What is trained: models with their first weights, batches and learning rates, the same for everyone measured.

Nothing here imports torch until a module is built, so that every peer's environment can read the batches::

    from workloads import WORKLOADS, select

    workload = WORKLOADS["minilm-lora"]
    module, (tokens, labels) = workload.module(), workload.batch(0)
"""

from workloads import images, speech, text, updates
from workloads.base import ADAMW, Batch, Workload, select

__all__ = ["ADAMW", "WORKLOADS", "Batch", "Workload", "select"]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (*images.WORKLOADS, *text.WORKLOADS, *speech.WORKLOADS, *updates.WORKLOADS)
}
