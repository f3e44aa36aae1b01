"""Training: from a table and its options to a trained model.

:func:`molattn.train` is the same in one call, with scores. Public here:

- :mod:`molattn.training.run`: ``train``, ``TrainingRun``;
- :mod:`molattn.training.resolve`: ``resolve``, which decides what the table leaves open;
- :mod:`molattn.training.run_folder`: ``run_folder``, ``Epoch``, ``History``;
- :mod:`molattn.training.losses`: ``TaskLoss``.

Only :mod:`molattn.training.loop` and :mod:`molattn.training.module` import Lightning.
"""
