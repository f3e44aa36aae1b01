"""A server that keeps to the API of ``molattn serve``, with an ADMET model of canned formulas.

The page is tested against it: it has 22 properties with cards, answers at once, and can be told to
be slow, busy or closed. ``python stub.py`` starts it alone.
"""

import json
import mimetypes
import threading
import time
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import Crippen, Descriptors

import molattn
from molattn.chem.difference import differing_atoms
from molattn.chem.draw import draw_molecule
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.explain.drawing import Drawing
from molattn.serve.bodies import FILES
from molattn.utils.html import SHARED_TEMPLATES

PAGE = Path(molattn.__file__).parent / "serve" / "page"
SHARED = {"colors.css": SHARED_TEMPLATES}
CSP = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'"
)
TRAINING = ["CC(=O)Oc1ccccc1", "CC(=O)Nc1ccccc1", "OC(=O)c1ccccc1O"]

# Name, group, title, unit, mean, change with logP and with polar surface / 50 Å².
_NUMBERS = [
    ("caco2", "Absorption", "Caco-2 permeability", "log cm/s", -4.8, 0.15, -0.4),
    ("solubility", "Absorption", "Solubility in water", "log mol/L", -1.6, -0.9, 0.1),
    ("lipophilicity", "Absorption", "Lipophilicity, logD at pH 7.4", "", 0.6, 0.6, -0.2),
    ("ppbr", "Distribution", "Bound to plasma proteins", "%", 60.0, 9.0, -4.0),
    ("vdss", "Distribution", "Volume of distribution", "L/kg", 1.9, 0.7, -0.5),
    ("half_life", "Excretion", "Half-life", "h", 7.0, 1.0, 0.4),
    (
        "clearance_hepatocyte",
        "Excretion",
        "Clearance by hepatocytes",
        "uL/min/10^6 cells",
        35,
        9,
        -8,
    ),
    ("clearance_microsome", "Excretion", "Clearance by microsomes", "mL/min/g", 28.0, 10.0, -7.0),
    ("ld50", "Toxicity", "Acute toxicity, LD50", "log(1/(mol/kg))", 2.3, 0.2, -0.1),
]
_CLASSES = [
    ("hia", "Absorption", "Absorbed by the intestine", 2.5, 0.3, -0.9),
    ("pgp", "Absorption", "Inhibits P-glycoprotein", -2.2, 0.6, 0.2),
    ("bioavailability", "Absorption", "Oral bioavailability of at least 20%", 1.4, 0.1, -0.4),
    ("bbb", "Distribution", "Reaches the brain", 1.8, 0.4, -1.1),
    ("cyp2c9", "Metabolism", "Inhibits CYP2C9", -2.4, 0.8, 0.0),
    ("cyp2d6", "Metabolism", "Inhibits CYP2D6", -2.9, 0.7, -0.1),
    ("cyp3a4", "Metabolism", "Inhibits CYP3A4", -2.6, 0.7, 0.1),
    ("cyp2c9_substrate", "Metabolism", "Substrate of CYP2C9", -1.5, 0.3, 0.0),
    ("cyp2d6_substrate", "Metabolism", "Substrate of CYP2D6", -1.2, 0.3, -0.3),
    ("cyp3a4_substrate", "Metabolism", "Substrate of CYP3A4", -0.8, 0.4, 0.1),
    ("ames", "Toxicity", "Mutagenic (Ames test)", -0.9, 0.1, 0.2),
    ("dili", "Toxicity", "Injures the liver", -0.6, 0.2, 0.5),
    ("herg", "Toxicity", "Blocks the hERG channel", -1.6, 0.8, -0.3),
]


def _quantiles(mean: float, spread: float) -> list[float]:
    return (mean + 2.5 * spread * np.linspace(-1, 1, 101) ** 3).round(3).tolist()


def _task(name: str, kind: str, group: str, title: str, unit: str, mean: float, lipo: float) -> Any:
    is_number = kind == "regression"
    spread = max(abs(lipo), abs(mean) / 8)
    thresholds = []
    if name == "caco2":
        thresholds = [
            {"low": -5.15, "high": None, "text": "permeates well", "source": ""},
            {"low": None, "high": -5.15, "text": "permeates poorly", "source": ""},
        ]
    return {
        "name": name,
        "kind": kind,
        "unit": unit,
        "classes": [] if is_number else ["0", "1"],
        "has_interval": is_number,
        "training": {
            "count": 910,
            "quantiles": _quantiles(mean, spread) if is_number else None,
            "class_counts": None if is_number else {"0": 610, "1": 300},
        },
        "reference": {
            "name": "approved drugs",
            "quantiles": _quantiles(mean + spread, spread)
            if is_number
            else np.linspace(0, 1, 101).round(2).tolist(),
        },
        "card": {
            "category": group,
            "title": title,
            "description": f"{title}, as measured in a standard assay.",
            "assay": "in vitro" if is_number else "yes or no from the literature",
            "unit": unit,
            "direction": "higher is better" if name in ("caco2", "solubility") else "",
            "thresholds": thresholds,
            "source": "TDC",
            "license": "CC BY 4.0",
            "rows": 910,
            "scores": "MAE 0.274 ± 0.010" if is_number else "ROC-AUC 0.910 ± 0.005",
            "coverage": 0.902 if is_number else None,
        },
    }


TASKS = [_task(n, "regression", g, t, u, m, a) for n, g, t, u, m, a, _ in _NUMBERS]
TASKS += [_task(n, "binary", g, t, "", m, a) for n, g, t, m, a, _ in _CLASSES]
_GROUPS = ["Absorption", "Distribution", "Metabolism", "Excretion", "Toxicity"]
TASKS.sort(key=lambda task: _GROUPS.index(task["card"]["category"]))
_FORMULAS = {name: rest for name, *_, m, a, b in (*_NUMBERS, *_CLASSES) for rest in [(m, a, b)]}


def model(name: str, tasks: list[Any], **others: Any) -> dict[str, Any]:
    """What ``/models`` says of a model."""
    common = {"version": "0.1.0", "level": 0.9, "partner": None, "features": []}
    return {"name": name, **common, "has_neighbors": True, "tasks": tasks, **others}


PLAIN = {
    "name": "logS",
    "kind": "regression",
    "unit": "log mol/L",
    "classes": [],
    "has_interval": False,
    "training": {"count": None, "quantiles": None, "class_counts": None},
    "reference": None,
    "card": None,
}
PHASE = PLAIN | {"name": "phase", "kind": "multiclass", "unit": "", "classes": ["gas", "solid"]}
PHASE["classes"] = ["gas", "liquid", "solid"]
LONG = PLAIN | {"name": "rate_of_intrinsic_clearance_in_human_hepatocytes_at_37_degrees"}
LONG["unit"] = "nmol/min/mg_of_microsomal_protein_at_37_degrees"
LONG_CLASS = LONG | {"name": "class", "kind": "multiclass", "unit": ""}
LONG_CLASS["classes"] = ["low", "high", "Pneumonoultramicroscopicsilicovolcanoconiosis_like"]
MODELS = [
    model("admet", TASKS),
    model("plain", [PLAIN, PHASE], features=["pH"], partner="solvent", has_neighbors=False),
    model("long", [LONG, LONG_CLASS]),
]


def molecule(
    smiles: str, model: dict[str, Any], level: float = 0.9, neighbors: int = 0
) -> dict[str, Any]:
    """The prediction of a molecule."""
    found: dict[str, Any] = {
        "smiles": smiles,
        "error": None,
        "message": None,
        "training_similarity": None,
        "in_domain": None,
        "predictions": {task["name"]: None for task in model["tasks"]},
        "neighbors": [],
    }
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles) if smiles.strip() else None
    if mol is None:
        code = "syntax" if smiles.strip() else "empty"
        words = f"SMILES: got {smiles!r}, expected a valid SMILES" if smiles.strip() else "no text"
        return found | {"error": code, "message": words}
    lipo, polar = Crippen.MolLogP(mol), Descriptors.TPSA(mol) / 50
    similarity = round(1 / (1 + mol.GetNumHeavyAtoms() / 25), 3)
    found["training_similarity"], found["in_domain"] = similarity, similarity >= 0.4
    for task in model["tasks"]:
        mean, a, b = _FORMULAS.get(task["name"], (0.0, 1.0, 1.0))
        value = mean + a * (lipo - 1) + b * (polar - 1)
        if task["kind"] == "regression":
            half = (abs(a) + 0.3) * (0.5 + level)
            ends = {"low": value - half, "high": value + half} if task["has_interval"] else {}
            found["predictions"][task["name"]] = {"value": value, **ends, "percentile": None}
        else:
            share = float(1 / (1 + np.exp(-value)))
            shares = [1 - share, share] if len(task["classes"]) == 2 else [0.2, 0.3, 0.5]
            found["predictions"][task["name"]] = {
                "class": task["classes"][int(np.argmax(shares))],
                "probabilities": dict(zip(task["classes"], shares, strict=True)),
                "percentile": None,
            }
        if (task["card"] or {}).get("category") == "Excretion":
            own = {"training_similarity": similarity - 0.2, "in_domain": similarity - 0.2 >= 0.4}
            found["predictions"][task["name"]] |= own
    for place, near in enumerate(TRAINING[: neighbors if model["has_neighbors"] else 0]):
        labels = {task["name"]: None for task in model["tasks"]}
        labels |= {"caco2": -4.6 - place, "ames": "1" if place else "0", "solubility": -1.72}
        labels |= {LONG["name"]: 1e-12, "class": LONG_CLASS["classes"][2]}
        labels |= {"clearance_hepatocyte": 123.4, "ld50": 2.345} if place == 1 else {}
        near_similarity = similarity - 0.06 * place
        found["neighbors"].append({"smiles": near, "similarity": near_similarity, "labels": labels})
    return found


@lru_cache(1000)
def _line(smiles: str, name: str, level: float, neighbors: int) -> bytes:
    chosen = next(one for one in MODELS if one["name"] == name)
    return json.dumps(molecule(smiles, chosen, level, neighbors)).encode() + b"\n"


class Stub(ThreadingHTTPServer):
    """The server; ``address`` is that of its page.

    ``delay`` is the time of a molecule in seconds, ``refusals`` how many of the next requests are
    answered with 429, ``token`` what a request must bear. ``asked`` lists the requests to predict.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.delay = 0.0
        self.refusals = 0
        self.token: str | None = None
        self.asked: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"

    def __enter__(self) -> "Stub":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """A page that was closed or has cancelled is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: Stub  # pyright: ignore

    def log_message(self, *_: Any) -> None:
        pass

    def _send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Security-Policy", CSP)
        self.end_headers()
        self.wfile.write(body)

    def _json(self, value: Any, status: int = 200, **headers: str) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", **headers)

    def _is_refused(self) -> bool:
        bearer = self.headers.get("Authorization")
        if self.server.token is not None and bearer != f"Bearer {self.server.token}":
            self._json({"error": "unauthorized", "message": "got no token, expected one"}, 401)
            return True
        return False

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/" or url.path.startswith("/static/"):
            name = url.path.removeprefix("/static/").lstrip("/") or "index.html"
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            self._send(200, (SHARED.get(name, PAGE) / name).read_bytes(), f"{kind}; charset=utf-8")
        elif self._is_refused():
            pass
        elif url.path == "/models":
            self._json({"models": MODELS})
        elif url.path == "/depict":
            with rdBase.BlockLogs():
                readable = Chem.MolFromSmiles(query["smiles"]) is not None
            if not readable:
                self._json({"error": "syntax", "message": "not a SMILES"}, 422)
                return
            marked = differing_atoms(query["smiles"], query["other"]) if "other" in query else []
            size = int(query["width"]), int(query["height"])
            svg = draw_molecule(query["smiles"], *size, marked)
            assert svg is not None
            self._send(200, svg.encode(), "image/svg+xml")
        else:
            self._json({"error": "not_found", "message": "no such page"}, 404)

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._is_refused():
            return
        if self.server.refusals:
            self.server.refusals -= 1
            self._json({"error": "busy", "message": "too many"}, 429, Retry_After="1")
        elif url.path == "/explain":
            self._explain(json.loads(body))
        else:
            self._predict(url.query, body)

    def _explain(self, asked: dict[str, Any]) -> None:
        mol = Chem.MolFromSmiles(asked["smiles"])
        scores = np.array([0.4 * (atom.GetAtomicNum() - 6.5) for atom in mol.GetAtoms()])
        pairs = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        caption = f"contribution to {asked['task']}, by occlusion"
        zeros, ends = np.zeros(len(pairs)), ("-1", "0", "+1")
        svg = Drawing(asked["smiles"], scores, pairs, zeros, True, 1.0, caption, ends).svg()
        text = [f"{asked['task']}: -4.87", caption, "baseline: -4.90", "largest: C1 +0.03"]
        check = "occlusion passed: beats random in both tests." if asked["check"] else None
        found = {"svg": svg, "atoms": scores.tolist(), "signed": True, "text": text}
        self._json(found | {"check": check})

    def _predict(self, query: str, body: bytes) -> None:
        asked: dict[str, Any] = {name: values[0] for name, values in parse_qs(query).items()}
        kind = self.headers["Content-Type"]
        if kind == "application/json":
            asked |= json.loads(body)
            header, rows = ["smiles"], [[smiles] for smiles in asked["smiles"]]
        else:
            try:
                header, rows, asked["smiles"] = _table(body, kind, asked.get("smiles_column"))
            except InputError as error:
                self._json({"error": "bad_request", "message": str(error)}, 422)
                return
            asked["rows"] = [dict(zip(header, row, strict=True)) for row in rows]
        self.server.asked.append(asked)
        chosen = asked["model"], float(asked["level"]), int(asked.get("neighbors", 0))
        if kind == "application/json":
            molecules = [json.loads(_line(smiles, *chosen)) for smiles in asked["smiles"]]
            self._json({"molecules": molecules})
            return
        accept = self.headers["Accept"]
        if accept != "application/x-ndjson":
            self._send(200, accept.encode(), accept)
            return
        self.send_response(200)
        self.send_header("Content-Type", accept)
        self.send_header("X-Molattn-Rows", str(len(rows)))
        self.end_headers()
        name = header.index("name") if "name" in header else None
        for smiles, row in zip(asked["smiles"], rows, strict=True):
            time.sleep(self.server.delay)
            line = _line(smiles, *chosen)
            if name is not None:
                line = json.dumps({**json.loads(line), "name": row[name]}).encode() + b"\n"
            self.wfile.write(line)


def _table(body: bytes, kind: str, column: str | None) -> tuple[list[str], list[Any], list[str]]:
    """The header, rows and SMILES of a body."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"body.{FILES[kind]}"
        path.write_bytes(body)
        table = open_table(path)
        place = table.column(column or "smiles", "smiles_column")
        rows = [row.cells for row in table]
        return table.header, rows, [row[place] for row in rows]


if __name__ == "__main__":
    Stub(8765).serve_forever()
