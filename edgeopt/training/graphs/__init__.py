"""The graphs of a bundle: what each signature computes, and how it is built."""
