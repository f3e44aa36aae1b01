// A small picture of all properties of a molecule: each at its place among molecules, the desired end up.
import { desiredOf, groups, placeIn, titleOf, valueText, verdictOf } from "./properties.js";
import { element } from "./shared.js";

export function profileOf(tasks, answer, against) {
  const drawn = groups(tasks).map(([name, own]) => [name, own.map((task) => [task, placeIn(task, answer, against)])
    .filter(([, place]) => place !== null)]).filter(([, own]) => own.length);
  if (drawn.flatMap(([, own]) => own).length < 4) return null;
  const column = ([task, place]) => {
    const height = desiredOf(task) === "lower" ? 100 - place : place;
    const { main, unit } = valueText(task, answer);
    const dot = element("i", { class: desiredOf(task) ? verdictOf(task, answer).verdict || "between" : "" });
    dot.style.bottom = `${height}%`;
    const stem = element("b");
    stem.style.height = `${height}%`;
    return element("span", { title: `${titleOf(task)}: ${main} ${unit}`.trim() }, stem, dot);
  };
  const group = ([name, own]) => {
    const made = element("div", {}, element("div", { class: "columns-of" }, ...own.map(column)),
      element("small", { title: name }, name.length > 6 ? `${name.slice(0, 3)}.` : name));
    made.style.flexGrow = own.length;
    return made;
  };
  return element("figure", { class: "profile" },
    element("div", { class: "chart", role: "img", "aria-label": "Profile: the place of each property, desired values up" },
      ...drawn.map(group)),
    element("figcaption", {}, "Profile: place among the training molecules, or probability. Desired values are up; "
      + "grey: no direction is desired."));
}
