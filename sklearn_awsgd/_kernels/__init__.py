"""Compiled parts: the loop, the row views, the losses, the samplers, the problems."""
