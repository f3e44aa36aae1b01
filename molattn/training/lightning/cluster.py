"""The place of a process among those that Slurm started."""

import os

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from molattn.errors import InputError

__all__ = ["set_slurm_variables"]

_FIRST_PORT = 15_000


def set_slurm_variables() -> None:
    """Set the variables of :mod:`molattn.utils.process_group` from those of ``srun``.

    The port follows from the number of the job, as in Lightning. ``MASTER_ADDR`` and
    ``MASTER_PORT`` are kept if they are set.

    Raises:
        InputError: The machines run different numbers of processes.
    """
    slurm = os.environ
    tasks, nodes = int(slurm["SLURM_STEP_NUM_TASKS"]), int(slurm["SLURM_STEP_NUM_NODES"])
    if tasks % nodes:
        raise InputError(
            f"srun: got {tasks} tasks on {nodes} machines, expected as many on each "
            "(--ntasks-per-node)"
        )
    first = SLURMEnvironment.resolve_root_node_address(slurm["SLURM_STEP_NODELIST"])
    os.environ.setdefault("MASTER_ADDR", first)
    os.environ.setdefault("MASTER_PORT", str(_FIRST_PORT + int(slurm["SLURM_JOB_ID"][-4:])))
    os.environ.update(
        RANK=slurm["SLURM_PROCID"],
        LOCAL_RANK=slurm["SLURM_LOCALID"],
        GROUP_RANK=slurm["SLURM_NODEID"],
        LOCAL_WORLD_SIZE=str(tasks // nodes),
        WORLD_SIZE=str(tasks),
    )
