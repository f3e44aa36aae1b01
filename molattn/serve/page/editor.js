// OpenChemLib's structure editor, loaded when it is first opened.
const load = () => import("./vendor/openchemlib/openchemlib.js");

function read(Molecule, smiles) {
  try {
    return Molecule.fromSmiles(smiles || "");
  } catch {
    return new Molecule(1, 1); // empty; the server says what is wrong with it
  }
}

// Opens an editor in a place of fixed size; `changed` is called when the user has changed the structure.
export async function openEditor(host, smiles, changed) {
  const { CanvasEditor, Molecule } = await load();
  const editor = new CanvasEditor(host);
  const root = host.firstElementChild.shadowRoot;
  const [toolbar, area] = root.querySelectorAll("canvas");
  toolbar.setAttribute("role", "img");
  toolbar.setAttribute("aria-label", "Drawing tools, for the mouse");
  area.setAttribute("role", "application");
  area.setAttribute("aria-label", "Structure editor, for the mouse; with the keyboard, write SMILES in the field beside it");
  const opened = {
    editor,
    show(text) {
      editor.setMolecule(read(Molecule, text)); // clearAll would pass for a change by the user
    },
    destroy() {
      if (!editor.isDestroyed) editor.destroy();
    },
  };
  opened.show(smiles);
  editor.setOnChangeListener(({ type, isUserEvent }) => {
    if (type === "molecule" && isUserEvent) changed();
  });
  return opened;
}

export const smilesOf = (opened) => opened.editor.getMolecule().toIsomericSmiles();
