"""An export proves itself: its graphs run on the examples, and must give what the model gives."""

from edgeopt_exporters.verification.reference import Reference, ReferenceFailed, Trained
from edgeopt_exporters.verification.verify import Verdict, verify

__all__ = ["Reference", "ReferenceFailed", "Trained", "Verdict", "verify"]
