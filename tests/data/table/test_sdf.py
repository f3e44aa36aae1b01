import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from molattn.chem import parse_smiles
from molattn.config import DataConfig
from molattn.data.table import open_table, write_table
from molattn.errors import SmilesError

SMILES = ["CCO", "c1ccccc1O", "C[C@H](N)C(=O)O", "F/C=C/F", "[NH4+].[Cl-]"]


def sdf_text(smiles=SMILES, properties=({"y": "1.5"}, {}, {"y": "2", "note": "two\nlines"})):
    """An SDF file as RDKit itself writes it."""
    records = []
    for number, text in enumerate(smiles):
        mol = Chem.MolFromSmiles(text)
        AllChem.Compute2DCoords(mol)
        mol.SetProp("_Name", f"m{number}")
        for name, value in (properties[number] if number < len(properties) else {}).items():
            mol.SetProp(name, value)
        records.append(Chem.SDWriter.GetText(mol))
    return "".join(records)


def saved(tmp_path, text, name="t.sdf"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_molecules_names_and_properties_become_columns(tmp_path, end):
    table = open_table(saved(tmp_path, sdf_text().replace("\n", end)))
    assert table.header == ["smiles", "name", "y", "note"]
    rows = list(table)
    found = [Chem.CanonSmiles(row.cells[0]) for row in rows]
    assert found == [Chem.CanonSmiles(text) for text in SMILES]
    assert [row.cells[1] for row in rows] == ["m0", "m1", "m2", "m3", "m4"]
    assert [row.cells[2:] for row in rows[:4]] == [
        ["1.5", ""],
        ["", ""],
        ["2", "two\nlines"],
        ["", ""],
    ]


def test_a_value_or_a_title_is_no_property(tmp_path):
    first, second = sdf_text().split("$$$$\n")[:2]
    first = "> <a>" + first[first.index("\n") :].replace("1.5\n", ">5 <10\n> 7 <z>\n")
    table = open_table(saved(tmp_path, f"{first}$$$$\n{second}$$$$\n"))
    assert table.header == ["smiles", "name", "y"]
    assert [row.cells[1:] for row in table] == [["> <a>", ">5 <10\n> 7 <z>"], ["m1", ""]]


def test_a_bad_molecule_costs_no_other(tmp_path, capfd):
    good = sdf_text(["CCO"], [{"y": "1"}])
    broken = good.replace("  3  2  0", "  9  9  9")
    headless = "a title alone\n$$$$\n"
    valence = Chem.MolToMolBlock(Chem.MolFromSmiles("FC(F)(F)(F)F", sanitize=False)) + "$$$$\n"
    nothing = Chem.MolToMolBlock(Chem.Mol()) + "$$$$\n"
    rows = list(open_table(saved(tmp_path, good + broken + headless + valence + nothing + good)))
    assert [row.code for row in rows] == ["", "mol_block", "mol_block", "", "", ""]
    assert rows[0].cells[0] == rows[-1].cells[0] == "CCO"
    assert rows[2].cells[1] == "a title alone"
    for row, code in ((rows[3], "valence"), (rows[4], "empty")):
        with pytest.raises(SmilesError) as error:
            parse_smiles(row.cells[0])
        assert error.value.code == code
    lines = (good + broken).count("\n")
    assert [row.line for row in rows[:3]] == [1, good.count("\n") + 1, lines + 1]
    assert capfd.readouterr() == ("", "")


def test_a_last_molecule_without_an_end_line_counts(tmp_path):
    text = sdf_text(["CCO", "CC"]).removesuffix("$$$$\n")
    assert [row.cells[0] for row in open_table(saved(tmp_path, text))] == ["CCO", "CC"]
    codes = [row.code for row in open_table(saved(tmp_path, sdf_text(["CCO"]) + text[:150]))]
    assert codes == ["", "mol_block"]


def test_a_record_is_written_for_each_row(tmp_path):
    path = tmp_path / "t.sdf"
    header = ["name", "smiles", "note", "<a>", "a"]
    rows = [
        ["ethanol", "C[C@H](O)F", "one\n\n$$$$\n> <x>\nlast", "", 1.0],
        ["$$$$\n two", "C(C", "=1+1", None, "caf\udce9"],
        ["", "C" * 1200, "\u2028", "x", ""],
    ]
    with write_table(path, header) as write:
        for row in rows:
            write(row, "" if row[1] == "C(C" else row[1])
    table = open_table(path)
    assert table.header == ["smiles", "name", "smiles_", "note", "a", "a_"]
    first, second, third = table
    values = ["C[C@H](O)F", "ethanol", "C[C@H](O)F", "one\n \n $$$$\n > <x>\nlast", "", "1"]
    assert first.cells == values
    assert second.cells == ["", "$$$$ two", "C(C", "=1+1", "", "caf\udce9"]
    assert third.cells[:4] == ["C" * 1200, "", "C" * 1200, "\u2028"]
    written = [*Chem.SDMolSupplier(str(path))]
    assert [mol.GetNumAtoms() for mol in written] == [4, 0, 1200]
    assert written[0].GetProp("_Name") == "ethanol"
    assert len({tuple(xyz) for xyz in written[0].GetConformer().GetPositions()}) == 4


def test_a_structure_that_was_read_is_written_unchanged(tmp_path):
    mol = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    AllChem.EmbedMolecule(mol, randomSeed=0)
    mol.SetProp("_Name", "ethanol")
    block = Chem.MolToMolBlock(mol)
    bad = block.replace(" C ", " Qq", 1)
    text = f"{block}> <y>\n1\n\n$$$$\n{bad}> <y>\n2\n\n$$$$\nx\n$$$$\n"
    (tmp_path / "in.sdf").write_text(text)
    table = open_table(tmp_path / "in.sdf")
    assert table.count() == 3
    with write_table(tmp_path / "out.sdf", [*table.header, "p"]) as write:
        for row in table:
            write([*row.cells, 0.5], row.block)
    records = (tmp_path / "out.sdf").read_text().split("$$$$\n")
    assert records[0] == f"{block}> <y>\n1\n\n> <p>\n0.5\n\n"
    assert records[1] == f"{bad}> <y>\n2\n\n> <p>\n0.5\n\n"
    assert records[2].startswith("x\n\n\n  0  0")


@pytest.mark.parametrize(
    "values, texts",
    [(["5,0", "6", ">7,25"], ["5.0", "6", ">7.25"]), (["5,0", "6.5", "7"], ["5,0", "6.5", "7"])],
)
def test_a_property_with_decimal_commas_alone_is_read_as_numbers(tmp_path, values, texts):
    text = sdf_text(["CCO"] * 3, [{"y": value} for value in values])
    path = saved(tmp_path, text)
    table = open_table(path, options=DataConfig())
    assert [row.numeral(2) for row in table] == texts
    assert [row.cells[2] for row in table] == values
    assert len(table.remarks) == (values != texts)
    assert next(iter(open_table(path, options=DataConfig(decimal=",")))).numeral(2) == "5.0"
