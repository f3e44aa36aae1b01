"""Tables of molecules: files to labeled molecules, their splits, and PyG's ``Data``.

Nothing is imported here, so that a table can be read without RDKit or torch. Public are
:mod:`molattn.data.table` (``open_table``, ``write_table``, ``FORMATS``, ``bundled_dataset``),
:mod:`molattn.data.prepare` (``prepare_store``), :mod:`molattn.data.store`,
:mod:`molattn.data.dataset` (``read_training_table``, ``TrainingTable``),
:mod:`molattn.data.splitting` (``split_rows``, ``find_leakage``),
:mod:`molattn.data.moleculenet` (``named_dataset``) and :mod:`molattn.data.pyg_data`
(``from_smiles``, ``from_mol``, which ``molattn`` exports).
"""
