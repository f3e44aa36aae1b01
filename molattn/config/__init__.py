"""Every option, declared once: command line, config files and saved models are derived from it."""

from molattn.config.base import RunConfig as RunConfig
from molattn.config.base import check_same_options as check_same_options
from molattn.config.data import DataConfig as DataConfig
from molattn.config.data import TaskChoice as TaskChoice
from molattn.config.data import TransformChoice as TransformChoice
from molattn.config.fine_tuning import FineTuningConfig as FineTuningConfig
from molattn.config.fine_tuning import Freeze as Freeze
from molattn.config.gaussian_process import GaussianProcessConfig as GaussianProcessConfig
from molattn.config.gaussian_process import Kernel as Kernel
from molattn.config.inference import EmbedConfig as EmbedConfig
from molattn.config.inference import ExplainConfig as ExplainConfig
from molattn.config.inference import PredictConfig as PredictConfig
from molattn.config.inference import StreamConfig as StreamConfig
from molattn.config.inference import TableConfig as TableConfig
from molattn.config.limits import MoleculeLimits as MoleculeLimits
from molattn.config.network import NetworkConfig as NetworkConfig
from molattn.config.network import layer_arguments as layer_arguments
from molattn.config.pretraining import MoleculesConfig as MoleculesConfig
from molattn.config.pretraining import PretrainConfig as PretrainConfig
from molattn.config.pretraining import PretrainLoopConfig as PretrainLoopConfig
from molattn.config.pretraining import PretrainNetworkConfig as PretrainNetworkConfig
from molattn.config.run import ReportConfig as ReportConfig
from molattn.config.run import TrainConfig as TrainConfig
from molattn.config.run import TuneConfig as TuneConfig
from molattn.config.training import SupervisedConfig as SupervisedConfig
from molattn.config.training import TrainingLoopConfig as TrainingLoopConfig
