// Draws rankings. Text reaches the document as text only (textContent), never as markup.

const FULL_BARS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
const GLIDE = { duration: 260, easing: "ease-out" };
const glides = !matchMedia("(prefers-reduced-motion: reduce)").matches;

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** The score at which a bar is full: a round number that no score exceeds. */
export function fullBar(answers) {
  const best = Math.max(...answers.flatMap((answer) => answer.results.map((result) => result.score)));
  return FULL_BARS.find((full) => full >= best) ?? 1;
}

/** A result as a list item. item: as it was asked. contextNames: the features that are the query's. */
export function rowOf(result, place, item, full, contextNames) {
  const row = element("li", "");
  row.dataset.index = result.index;
  const bar = element("div", "bar");
  bar.append(element("span", ""));
  bar.firstChild.style.width = `${(result.score / full) * 100}%`;
  const body = element("div", "body");
  body.append(whatOf(result, item, contextNames), bar, missingOf(result, contextNames));
  row.append(element("span", "place", `${place}`), body, element("span", "score", result.score.toFixed(3)));
  return row;
}

/** An item's texts with the words that match, then its other values. */
function whatOf(result, item, contextNames) {
  const what = element("div", "what");
  const texts = Object.entries(result.debug.words).filter(([name]) => !contextNames.has(name));
  for (const [name, words] of texts) {
    const text = element("span", "text");
    for (const word of words) text.append(...marked(word));
    if (words.length > 0) what.append(text);
  }
  const values = typeof item === "string" ? [] : Object.entries(item);
  const others = values.filter(([name]) => !(name in result.debug.words) && name !== "id");
  for (const [name, value] of others) what.append(element("span", "value", `${name} ${JSON.stringify(value)}`));
  return what;
}

function marked({ text, tokens, read, matched }) {
  const space = text.length - text.trimStart().length;
  const className = matched === 0 ? (read < tokens ? "unread" : "") : matched === tokens ? "all" : "some";
  const shown = element(matched > 0 ? "mark" : "span", className, text.slice(space));
  if (tokens > 0) shown.title = `${tokens} ${tokens === 1 ? "token" : "tokens"}, ${matched} also of the query`;
  return [text.slice(0, space), shown];
}

/** The query's words of which the item has no token, where it has any of the others. */
function missingOf(result, contextNames) {
  const missing = element("div", "missing");
  const words = [...contextNames].flatMap((name) => result.debug.words[name] ?? []);
  const absent = words.filter((word) => word.read > 0 && word.matched === 0 && /[\p{L}\p{N}]/u.test(word.text));
  if (absent.length === 0 || words.every((word) => word.matched === 0)) return missing;
  missing.append("without ");
  for (const word of absent) missing.append(element("s", "", word.text.trim()), " ");
  return missing;
}

/** What a row says of where the item stands elsewhere: `from` is its place there. */
export function moveOf(from, place, where) {
  const by = from - place;
  const [className, sign] = by > 0 ? ["move up", `▲ ${by}`] : by < 0 ? ["move down", `▼ ${-by}`] : ["move", "="];
  const move = element("span", className, sign);
  move.title = `place ${from} ${where}`;
  move.append(element("span", "said", `, place ${from} ${where}`));
  return move;
}

/** Lets rows glide to where they stand now. before: their tops by index. */
export function glide(list, before) {
  if (!glides) return;
  for (const row of list.children) {
    const by = (before.get(row.dataset.index) ?? NaN) - row.offsetTop;
    if (by) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], GLIDE);
  }
}

export function topsOf(list) {
  return new Map([...list.children].map((row) => [row.dataset.index, row.offsetTop]));
}

/** Lines from each item of one list to the same item of the other. */
export function drawMoves(svg, left, right) {
  const topOf = (shown) => shown.getBoundingClientRect().top;
  const middle = (row) => topOf(row.offsetParent) - topOf(svg) + row.offsetTop + row.offsetHeight / 2;
  const width = svg.clientWidth;
  const places = new Map([...right.children].map((row, place) => [row.dataset.index, [row, place]]));
  svg.replaceChildren(...[...left.children].map((row, place) => {
    const [other, there] = places.get(row.dataset.index);
    const [from, to] = [middle(row), middle(other)];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", `M0 ${from} C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}`);
    line.setAttribute("class", there < place ? "up" : there > place ? "down" : "");
    line.dataset.index = row.dataset.index;
    return line;
  }));
}

/** How many pairs of items two orders of the same items put the other way round. */
export function swappedPairs(order, other) {
  const place = new Map(other.map((index, at) => [index, at]));
  let swapped = 0;
  for (let i = 0; i < order.length; i += 1) {
    for (let j = i + 1; j < order.length; j += 1) swapped += place.get(order[i]) > place.get(order[j]);
  }
  return swapped;
}
