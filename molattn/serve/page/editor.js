// OpenChemLib's structure editor, loaded when it is first opened.
export async function openEditor(host, smiles, changed) {
  const { CanvasEditor, Molecule } = await import("./vendor/openchemlib/openchemlib.js");
  const editor = new CanvasEditor(host);
  const [toolbar, area] = host.firstElementChild.shadowRoot.querySelectorAll("canvas");
  toolbar.setAttribute("role", "img");
  toolbar.setAttribute("aria-label", "Drawing tools, for the mouse");
  area.setAttribute("role", "application");
  area.setAttribute("aria-label", "Structure editor, for the mouse; with the keyboard, write SMILES in the field beside it");
  const read = (text) => {
    try {
      return Molecule.fromSmiles(text || "");
    } catch {
      return new Molecule(1, 1); // empty; the server says what is wrong with it
    }
  };
  const opened = {
    // clearAll would pass for a change by the user.
    show: (text) => editor.setMolecule(read(text)),
    smiles: () => editor.getMolecule().toIsomericSmiles(),
    destroy: () => editor.isDestroyed || editor.destroy(),
  };
  opened.show(smiles);
  editor.setOnChangeListener(({ type, isUserEvent }) => {
    if (type === "molecule" && isUserEvent) changed(opened.smiles());
  });
  return opened;
}
