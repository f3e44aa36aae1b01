import json

import pytest

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.artefact import ENDPOINTS_FILE, MANIFEST_FILE, ModelFiles
from molattn.model.endpoints import Endpoint, Threshold, endpoints_from_files
from molattn.model.model import MolAttn, MolAttnConfig

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
WHOLE = Endpoint(
    title="Solubility",
    category="Physical chemistry",
    description="How much dissolves in water.",
    assay="Shake flask",
    unit="log mol/L",
    direction="higher",
    thresholds=(Threshold("soluble", low=-4.0), Threshold("see text", source="Delaney")),
    source="Delaney 2004",
    license="CC BY 4.0",
    rows=1128,
    scores="RMSE 0.56 ± 0.03",
    coverage=0.91,
)


def saved(folder, endpoints):
    model = MolAttn(MolAttnConfig(("logS", "other"), SMALL))
    model.endpoints = endpoints
    model.save_pretrained(folder)
    return folder


def test_endpoints_come_back_as_they_were(tmp_path):
    endpoints = {"logS": WHOLE, "other": Endpoint("Äther")}
    assert MolAttn.from_pretrained(saved(tmp_path, endpoints)).endpoints == endpoints
    assert ENDPOINTS_FILE in json.loads((tmp_path / MANIFEST_FILE).read_text())
    # Saved again without them, the file is gone.
    assert MolAttn.from_pretrained(saved(tmp_path, {})).endpoints == {}
    assert not (tmp_path / ENDPOINTS_FILE).exists()


def test_an_ensemble_has_no_scores_of_one_member():
    model = MolAttn(MolAttnConfig("logS", SMALL))
    model.endpoints = {"logS": WHOLE}
    (endpoint,) = MolAttn.ensemble([model, model]).endpoints.values()
    assert (endpoint.rows, endpoint.scores, endpoint.coverage) == (None, "", None)
    assert (endpoint.title, endpoint.license) == (WHOLE.title, WHOLE.license)
    assert model.endpoints == {"logS": WHOLE}


@pytest.mark.parametrize(
    "content",
    [
        {"nothing": {"title": "t"}},
        {"logS": "t"},
        {"logS": {}},
        {"logS": {"title": "t", "color": "red"}},
        {"logS": {"title": 3}},
        {"logS": {"title": "t", "rows": "many"}},
        {"logS": {"title": "t", "thresholds": [{"text": "t", "low": "1"}]}},
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content):
    folder = saved(tmp_path, {"logS": WHOLE})
    (folder / ENDPOINTS_FILE).write_text(json.dumps(content))
    with pytest.raises(InputError, match=ENDPOINTS_FILE):
        endpoints_from_files(ModelFiles.read(folder), MolAttnConfig(("logS", "other"), SMALL).tasks)


def test_thresholds_in_words():
    ends = [(None, None), (-5.15, None), (None, 3), (1, 3)]
    found = [str(Threshold("good", low, high, "a server")) for low, high in ends]
    assert found == [
        "good (a server)",
        "-5.15 and above: good (a server)",
        "below 3: good (a server)",
        "1 to 3: good (a server)",
    ]
    assert str(Threshold("good")) == "good"
