"""Every option, declared once: the command line, config files and saved models follow from it."""

from molattn.config.architecture import ArchitectureConfig as ArchitectureConfig
from molattn.config.data import DataConfig as DataConfig
from molattn.config.data import TaskChoice as TaskChoice
from molattn.config.explain import ExplainConfig as ExplainConfig
from molattn.config.fine_tuning import FineTuningConfig as FineTuningConfig
from molattn.config.fine_tuning import Freeze as Freeze
from molattn.config.optimisation import LoopConfig as LoopConfig
from molattn.config.optimisation import OptimisationConfig as OptimisationConfig
from molattn.config.predict import FingerprintConfig as FingerprintConfig
from molattn.config.predict import PredictConfig as PredictConfig
from molattn.config.predict import StreamConfig as StreamConfig
from molattn.config.pretraining import MoleculesConfig as MoleculesConfig
from molattn.config.pretraining import PretrainArchitectureConfig as PretrainArchitectureConfig
from molattn.config.pretraining import PretrainConfig as PretrainConfig
from molattn.config.pretraining import PretrainLoopConfig as PretrainLoopConfig
from molattn.config.report import ReportConfig as ReportConfig
from molattn.config.run import CONFIG_SECTIONS as CONFIG_SECTIONS
from molattn.config.run import TrainConfig as TrainConfig
from molattn.config.run import option_places as option_places
from molattn.config.sections import RunConfig as RunConfig
from molattn.config.sections import check_same_options as check_same_options
from molattn.config.tune import TuneConfig as TuneConfig
