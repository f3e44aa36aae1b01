"""The model: its configuration, network, saving and uncertainty.

Public are ``molattn.MolAttn`` and ``molattn.MolAttnConfig``; modules of this package may
change. Nothing is imported here, so that files of models can be read without torch.
"""
