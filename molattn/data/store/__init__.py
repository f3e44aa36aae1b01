"""Stores of prepared molecules: tables whose molecules are read before they are used.

Nothing is imported here, so that a store can be opened without RDKit or torch.
:mod:`molattn.data.store.prepare` writes a store, :mod:`molattn.data.store.table` reads it as a
table, and :mod:`molattn.data.store.store` shard by shard.
"""
