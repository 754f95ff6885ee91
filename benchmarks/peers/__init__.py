"""Who is measured: one module a peer, run in an environment of its own (`build/peers/ENVIRONMENT`, made by make).

A module here may import its package when its functions are called, never before: the program that starts the peers
reads their names without having any of them.
"""

from peers.base import Cannot, Peer, Step
from peers.registry import ANCHOR, PEERS

__all__ = ["ANCHOR", "PEERS", "Cannot", "Peer", "Step"]
