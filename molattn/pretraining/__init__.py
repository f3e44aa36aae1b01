"""Pretraining on unlabeled molecules: descriptors, substructure counts, masked atoms and bonds."""

from molattn.pretraining.run import PretrainingRun as PretrainingRun
from molattn.pretraining.run import describe_scores as describe_scores
from molattn.pretraining.run import pretrain as pretrain
from molattn.pretraining.run import write_pretraining as write_pretraining
