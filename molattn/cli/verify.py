"""``molattn verify``."""

from molattn.cli.shared import ModelFolder, make_console
from molattn.utils.console import print_line

__all__ = ["EXAMPLE", "verify"]

EXAMPLE = """Example:
  molattn verify runs/solubility
"""


def verify(model: ModelFolder, /) -> None:
    """Check that the files of a saved model are complete and unchanged.

    Compares the files with the manifest (sizes, SHA-256), loads the model, and compares its inputs
    if RDKit or molattn have other versions than in the training.

    Args:
        model: See ``ModelFolder``.
    """
    from molattn.model.artefact import ModelFiles, find_local_model
    from molattn.model.model import MolAttn
    from molattn.training.run_folder import final_folder
    from molattn.utils.files import UNFINISHED

    console = make_console()
    final = final_folder(model)
    unfinished = final.with_name(final.name + UNFINISHED)
    if unfinished.is_dir() and unfinished.name != model.name:
        print_line(console, f"{unfinished}: an unfinished run, which is not checked")
    files = ModelFiles.read(find_local_model(model))
    problems = files.problems()
    for name, problem in problems.items():
        size = f"{len(files.content[name]):,}" if name in files.content else "-"
        print_line(console, f"{name:<{max(map(len, problems))}}  {size:>12}  {problem or 'ok'}")
    files.check()
    config = files.config
    has_parts = bool(config.get("custom_parts"))
    if not has_parts and (remark := MolAttn.from_files(files).inputs_remark()):
        print_line(console, remark)
    facts = [
        f"format {config.get('format')}, saved by molattn {config.get('molattn_version')}",
        "all files as saved",
        "not loaded, as it has custom parts" if has_parts else "the model can be loaded",
    ]
    print_line(console, f"{files.folder}: {'; '.join(facts)}")
