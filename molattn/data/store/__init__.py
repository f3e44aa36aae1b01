"""Stores of prepared molecules: tables whose molecules are read before they are used.

Nothing is imported here, so that a store can be opened without RDKit or torch. Public are
:mod:`molattn.data.store.prepare` (``prepare_store``), :mod:`molattn.data.store.table`
(``StoreTable``, which :func:`molattn.data.table.open_table` opens) and
:mod:`molattn.data.store.store` (``Store``, random access).
"""
